//! Three etcd members on loopback, and the two calls of their gRPC interface that are needed, by hand: so nothing has
//! to be compiled from protocol files.

use crate::members::{Folder, Process, free_ports, in_time};
use futures::future::BoxFuture;
use keyraft_engine::clock::Clock;
use keyraft_node::exit::{Exit, Problem};
use prost::Message;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

/// etcdserverpb.PutRequest, as far as it is used.
#[derive(Clone, PartialEq, Message)]
struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// etcdserverpb.PutResponse; nothing of it is used.
#[derive(Clone, PartialEq, Message)]
struct PutResponse {}

/// etcdserverpb.StatusRequest.
#[derive(Clone, PartialEq, Message)]
struct StatusRequest {}

/// etcdserverpb.ResponseHeader, as far as it is used.
#[derive(Clone, PartialEq, Message)]
struct Header {
    #[prost(uint64, tag = "2")]
    member_id: u64,
}

/// etcdserverpb.StatusResponse, as far as it is used.
#[derive(Clone, PartialEq, Message)]
struct StatusResponse {
    #[prost(message, optional, tag = "1")]
    header: Option<Header>,
    #[prost(string, tag = "2")]
    version: String,
    #[prost(uint64, tag = "4")]
    leader: u64,
}

/// A client with a connection of its own.
pub struct Client(Channel);

impl Client {
    async fn connect(url: &str) -> Result<Self, Problem> {
        let endpoint = Endpoint::from_shared(url.to_string()).map_err(problem)?.tcp_nodelay(true);
        Ok(Self(endpoint.connect().await.map_err(problem)?))
    }

    fn call<Q: Message + 'static, A: Message + Default + 'static>(
        &self,
        path: &'static str,
        request: Q,
    ) -> BoxFuture<'static, Result<A, Problem>> {
        let mut grpc = tonic::client::Grpc::new(self.0.clone());
        Box::pin(async move {
            grpc.ready().await.map_err(problem)?;
            let codec = ProstCodec::<Q, A>::default();
            let path = PathAndQuery::from_static(path);
            Ok(grpc.unary(tonic::Request::new(request), path, codec).await.map_err(problem)?.into_inner())
        })
    }

    /// Puts a value.
    pub async fn put(&self, key: Vec<u8>, value: Vec<u8>) -> Result<(), Problem> {
        let request = PutRequest { key, value };
        self.call::<_, PutResponse>("/etcdserverpb.KV/Put", request).await.map(drop)
    }

    async fn status(&self) -> Result<StatusResponse, Problem> {
        self.call("/etcdserverpb.Maintenance/Status", StatusRequest {}).await
    }
}

fn problem(error: impl std::error::Error) -> Problem {
    Problem::new(Exit::Unexpected, format!("etcd: {error}"), "")
}

/// Three members. They end, and their folder goes, with this.
pub struct Etcd {
    _processes: Vec<Process>,
    _folder: Folder,
    leader: String,
    /// What etcd calls itself.
    pub version: String,
}

impl Etcd {
    /// Starts them, and finds the leader.
    pub async fn form(program: &Path, parent: &Path) -> Result<Self, Problem> {
        let folder = Folder::new(parent, "etcd", false)?;
        let ports = free_ports(6)?;
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let cluster: Vec<String> = (0..3).map(|i| format!("e{i}={}", url(ports[i]))).collect();
        let mut processes = Vec::new();
        for index in 0..3 {
            let (peer, client) = (url(ports[index]), url(ports[3 + index]));
            let mut command = Command::new(program);
            command.args(["--name", &format!("e{index}")]);
            command.arg("--data-dir").arg(folder.path().join(format!("e{index}")));
            command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
            command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
            command.args(["--initial-cluster", &cluster.join(","), "--initial-cluster-state", "new"]);
            command.args(["--logger", "zap", "--log-level", "error"]);
            // A signal of the terminal is the bench's to handle: it ends them all.
            command.process_group(0);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let child = command.spawn().map_err(|e| {
                let what = format!("cannot start {}: {e}", program.display());
                Problem::new(Exit::NotFound, what, "install etcd with: apt-get install etcd-server")
            })?;
            processes.push(Process(child));
        }
        let begin = Clock.now();
        let urls: Vec<String> = ports[3..].iter().map(|port| url(*port)).collect();
        loop {
            for url in &urls {
                let Ok(client) = Client::connect(url).await else { continue };
                let Ok(status) = client.status().await else { continue };
                if status.leader != 0 && status.header.is_some_and(|h| h.member_id == status.leader) {
                    let (leader, version) = (url.clone(), status.version);
                    return Ok(Self { _processes: processes, _folder: folder, leader, version });
                }
            }
            in_time(begin, "etcd's leader")?;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// A client of the leader.
    pub async fn client(&self) -> Result<Client, Problem> {
        Client::connect(&self.leader).await
    }
}
