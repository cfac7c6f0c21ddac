//! Three etcd members on loopback, and the calls of their gRPC interface that are needed, by hand: so nothing has
//! to be compiled from protocol files.

use crate::members::{Folder, Process, free_ports, in_time};
use futures::future::BoxFuture;
use keyraft_engine::clock::Clock;
use keyraft_node::exit::{Exit, Problem};
use prost::Message;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
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

/// etcdserverpb.MoveLeaderRequest.
#[derive(Clone, PartialEq, Message)]
struct MoveLeaderRequest {
    #[prost(uint64, tag = "1")]
    target: u64,
}

/// etcdserverpb.MoveLeaderResponse; nothing of it is used.
#[derive(Clone, PartialEq, Message)]
struct MoveLeaderResponse {}

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

    async fn leads(&self) -> Result<bool, Problem> {
        let status = self.status().await?;
        Ok(status.leader != 0 && status.header.is_some_and(|header| header.member_id == status.leader))
    }

    async fn status(&self) -> Result<StatusResponse, Problem> {
        self.call("/etcdserverpb.Maintenance/Status", StatusRequest {}).await
    }
}

fn problem(error: impl std::error::Error) -> Problem {
    Problem::new(Exit::Unexpected, format!("etcd: {error}"), "")
}

/// One member.
struct Member {
    words: Vec<String>,
    url: String,
    process: Option<Process>,
}

/// Three members. They end, and their folder goes, with this.
pub struct Etcd {
    program: PathBuf,
    // Before the folder: the processes end first.
    members: Vec<Member>,
    _folder: Folder,
    /// What etcd calls itself.
    pub version: String,
}

impl Etcd {
    /// Starts them, with these words more, and waits for a leader.
    pub async fn form(program: &Path, parent: &Path, name: &str, more: &[&str]) -> Result<Self, Problem> {
        let folder = Folder::new(parent, name, false)?;
        let ports = free_ports(6)?;
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let cluster: Vec<String> = (0..3).map(|i| format!("e{i}={}", url(ports[i]))).collect();
        let cluster = cluster.join(",");
        let mut members = Vec::new();
        for index in 0..3 {
            let (peer, client) = (url(ports[index]), url(ports[3 + index]));
            let data = folder.path().join(format!("e{index}")).display().to_string();
            let words = ["--name", &format!("e{index}"), "--data-dir", &data];
            let peers = ["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer];
            let clients = ["--listen-client-urls", &client, "--advertise-client-urls", &client];
            let cluster = ["--initial-cluster", &cluster, "--initial-cluster-state", "new"];
            let log = ["--logger", "zap", "--log-level", "error"];
            let words = [&words[..], &peers, &clients, &cluster, &log, more].concat();
            let words = words.into_iter().map(str::to_string).collect();
            members.push(Member { words, url: client, process: None });
        }
        let mut etcd = Self { program: program.into(), members, _folder: folder, version: String::new() };
        for index in 0..3 {
            etcd.start(index)?;
        }
        let leader = etcd.leader(Clock.now()).await?;
        etcd.version = Client::connect(&etcd.members[leader].url).await?.status().await?.version;
        Ok(etcd)
    }

    fn start(&mut self, index: usize) -> Result<(), Problem> {
        let mut command = Command::new(&self.program);
        // A signal of the terminal is the bench's to handle: it ends them all.
        command.args(&self.members[index].words).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().map_err(|e| {
            let what = format!("cannot start {}: {e}", self.program.display());
            Problem::new(Exit::NotFound, what, "install etcd with: apt-get install etcd-server")
        })?;
        self.members[index].process = Some(Process(child));
        Ok(())
    }

    /// The index of the member that says it leads.
    async fn leader(&self, begin: Instant) -> Result<usize, Problem> {
        loop {
            for (index, member) in self.members.iter().enumerate().filter(|(_, m)| m.process.is_some()) {
                let Ok(client) = Client::connect(&member.url).await else { continue };
                if client.leads().await.unwrap_or(false) {
                    return Ok(index);
                }
            }
            in_time(begin, "etcd's leader")?;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// A client of the leader.
    pub async fn client(&self) -> Result<Client, Problem> {
        Client::connect(&self.members[self.leader(Clock.now()).await?].url).await
    }

    /// Clients of all but one, connected.
    async fn others(&self, not: usize) -> Result<Vec<Client>, Problem> {
        let mut clients = Vec::new();
        for (_, member) in self.members.iter().enumerate().filter(|(index, _)| *index != not) {
            clients.push(Client::connect(&member.url).await?);
        }
        Ok(clients)
    }

    /// kill -9 of the leader; notes when another leads and when that has answered a put. Then it is back.
    pub async fn kill_leader(
        &mut self,
        leads: &mut Vec<Duration>,
        changed: &mut Vec<Duration>,
    ) -> Result<(), Problem> {
        let leader = self.leader(Clock.now()).await?;
        let others = self.others(leader).await?;
        let begin = Clock.now();
        self.members[leader].process = None;
        follow(&others, begin, leads, changed).await?;
        self.start(leader)?;
        let begin = Clock.now();
        while Client::connect(&self.members[leader].url).await.is_err() {
            in_time(begin, "an etcd member's return")?;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// The leader hands over; notes the same.
    pub async fn move_leader(
        &self,
        leads: &mut Vec<Duration>,
        changed: &mut Vec<Duration>,
    ) -> Result<(), Problem> {
        let leader = self.leader(Clock.now()).await?;
        let others = self.others(leader).await?;
        let to = others[0].status().await?.header.map_or(0, |header| header.member_id);
        let old = Client::connect(&self.members[leader].url).await?;
        let begin = Clock.now();
        let moved = old.call::<_, MoveLeaderResponse>(
            "/etcdserverpb.Maintenance/MoveLeader",
            MoveLeaderRequest { target: to },
        );
        let (moved, followed) = tokio::join!(moved, follow(&others, begin, leads, changed));
        moved?;
        followed
    }
}

/// Notes when one of these leads, and when it has answered a put.
async fn follow(
    members: &[Client],
    begin: Instant,
    leads: &mut Vec<Duration>,
    changed: &mut Vec<Duration>,
) -> Result<(), Problem> {
    let leader = 'found: loop {
        for client in members {
            if client.leads().await? {
                break 'found client;
            }
        }
        in_time(begin, "etcd's next leader")?;
        tokio::time::sleep(Duration::from_millis(1)).await;
    };
    leads.push(Clock.now() - begin);
    while leader.put(b"failover".to_vec(), b"x".to_vec()).await.is_err() {
        in_time(begin, "an answered put")?;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    changed.push(Clock.now() - begin);
    Ok(())
}
