// What programs do with keys of a token through SunPKCS11. Arguments: the provider's configuration, the PIN, and either
// "steps" (each once; "ok NAME" or "failed NAME: why") or a number of seconds to do the same things over and over
// ("N rounds" at the end; the first failure ends it).

import java.security.*;
import java.security.cert.X509Certificate;
import java.security.spec.*;
import java.util.*;
import java.util.concurrent.*;
import javax.crypto.*;
import javax.crypto.spec.*;

public class Client {
    interface Step {
        void take() throws Exception;
    }

    static final byte[] DATA = "what is signed and sealed".getBytes();
    static Provider provider;
    static KeyStore store;
    static char[] pin;
    static PrivateKey storedKey;
    static PublicKey storedPublic;

    public static void main(String[] arguments) throws Exception {
        provider = Security.getProvider("SunPKCS11").configure(arguments[0]);
        Security.addProvider(provider);
        pin = arguments[1].toCharArray();
        store = KeyStore.getInstance("PKCS11", provider);
        store.load(null, pin);
        storedKey = (PrivateKey) store.getKey("krsa", null);
        if (storedKey != null) storedPublic = store.getCertificate("krsa").getPublicKey();
        if (arguments[2].equals("steps")) {
            steps();
        } else {
            // Who starts it may delete keys from now on: the key store reads every one of them while it loads.
            System.out.println("loaded");
            System.out.flush();
            rounds(Integer.parseInt(arguments[2]));
        }
    }

    static void step(String name, Step step) {
        try {
            step.take();
            System.out.println("ok " + name);
        } catch (Throwable why) {
            StringBuilder text = new StringBuilder();
            for (Throwable at = why; at != null; at = at.getCause()) text.append(at).append(" <- ");
            System.out.println("failed " + name + ": " + text.toString().replace('\n', ' '));
        }
    }

    static void check(boolean right, String what) {
        if (!right) throw new IllegalStateException(what);
    }

    static void steps() throws Exception {
        for (String way : List.of("SHA1withRSA", "SHA256withRSA", "SHA384withRSA", "SHA512withRSA"))
            step(way + " with the stored key", () -> sign(way, storedKey, storedPublic, null));
        for (String hash : List.of("SHA-256", "SHA-384"))
            step("RSASSA-PSS " + hash + " with the stored key", () -> sign("RSASSA-PSS", storedKey, storedPublic, pss(hash)));
        step("RSA decryption with the stored key", () -> seal("RSA/ECB/PKCS1Padding", storedPublic, storedKey, null));
        for (int bits : List.of(2048, 3072))
            step("a session key pair, RSA " + bits, () -> {
                KeyPair pair = pair("RSA", bits, null);
                sign("SHA256withRSA", pair.getPrivate(), pair.getPublic(), null);
            });
        for (String curve : List.of("secp256r1", "secp384r1", "secp521r1")) {
            step("a session key pair, " + curve, () -> {
                KeyPair pair = pair("EC", 0, curve);
                for (String hash : List.of("SHA256", "SHA384", "SHA512"))
                    sign(hash + "withECDSA", pair.getPrivate(), pair.getPublic(), null);
                sign("NONEwithECDSA", pair.getPrivate(), pair.getPublic(), null);
            });
            step("ECDH, " + curve, () -> agree(curve));
        }
        for (int bits : List.of(128, 192, 256)) step("AES-" + bits, () -> {
            SecretKey key = aes(bits);
            byte[] iv = new byte[16];
            seal("AES/ECB/NoPadding", key, key, null);
            seal("AES/CBC/NoPadding", key, key, new IvParameterSpec(iv));
            seal("AES/CBC/PKCS5Padding", key, key, new IvParameterSpec(iv));
        });
        step("AES-CTR", () -> seal("AES/CTR/NoPadding", aes(256), null, new IvParameterSpec(new byte[16])));
        step("AES-GCM", () -> seal("AES/GCM/NoPadding", aes(256), null, new GCMParameterSpec(128, new byte[12])));
        for (String hash : List.of("SHA1", "SHA256", "SHA384", "SHA512")) step("Hmac" + hash, () -> {
            SecretKey key = new SecretKeySpec(new byte[64], "Hmac" + hash);
            check(Arrays.equals(mac("Hmac" + hash, key, provider), mac("Hmac" + hash, key, null)), "another HMAC");
        });
        for (String hash : List.of("SHA-1", "SHA-256", "SHA-384", "SHA-512")) step(hash, () -> {
            byte[] ours = MessageDigest.getInstance(hash, provider).digest(DATA);
            check(Arrays.equals(ours, MessageDigest.getInstance(hash, "SUN").digest(DATA)), "another digest");
        });
        step("random", () -> {
            byte[] one = new byte[32];
            SecureRandom.getInstance("PKCS11", provider).nextBytes(one);
            check(!Arrays.equals(one, new byte[32]), "no random bytes");
        });
        step("a key from outside", () -> {
            SecretKey outside = new SecretKeySpec(new byte[16], "AES");
            Cipher ours = Cipher.getInstance("AES/ECB/NoPadding", provider);
            ours.init(Cipher.ENCRYPT_MODE, outside);
            Cipher theirs = Cipher.getInstance("AES/ECB/NoPadding", "SunJCE");
            theirs.init(Cipher.ENCRYPT_MODE, outside);
            check(Arrays.equals(ours.doFinal(new byte[32]), theirs.doFinal(new byte[32])), "another ciphertext");
        });
        step("a private key from outside", () -> {
            KeyPairGenerator generator = KeyPairGenerator.getInstance("RSA", "SunRsaSign");
            generator.initialize(2048);
            KeyPair pair = generator.generateKeyPair();
            PrivateKey inside = (PrivateKey) KeyFactory.getInstance("RSA", provider).translateKey(pair.getPrivate());
            sign("SHA256withRSA", inside, pair.getPublic(), null);
        });
        step("wrap and unwrap", () -> {
            KeyPair pair = pair("RSA", 2048, null);
            Cipher cipher = Cipher.getInstance("RSA/ECB/PKCS1Padding", provider);
            cipher.init(Cipher.WRAP_MODE, pair.getPublic());
            byte[] wrapped = cipher.wrap(new SecretKeySpec(new byte[32], "AES"));
            cipher.init(Cipher.UNWRAP_MODE, pair.getPrivate());
            Key back = cipher.unwrap(wrapped, "AES", Cipher.SECRET_KEY);
            seal("AES/ECB/NoPadding", back, back, null);
        });
        step("64 threads", Client::threads);
        step("log out and in", () -> {
            ((AuthProvider) provider).logout();
            ((AuthProvider) provider).login(null, new KeyStore.CallbackHandlerProtection(asked -> {
                for (var one : asked) ((javax.security.auth.callback.PasswordCallback) one).setPassword(pin);
            }).getCallbackHandler());
            KeyStore again = KeyStore.getInstance("PKCS11", provider);
            again.load(null, pin);
            check(again.getKey("krsa", null) != null, "the key is not seen after the second login");
            sign("SHA256withRSA", (PrivateKey) again.getKey("krsa", null), storedPublic, null);
        });
        step("store a key pair", () -> {
            KeyPair pair = pair("RSA", 2048, null);
            store.setKeyEntry("stored", pair.getPrivate(), null, store.getCertificateChain("krsa"));
            check(store.isKeyEntry("stored"), "is not there");
        });
    }

    static PSSParameterSpec pss(String hash) {
        int salt = hash.equals("SHA-256") ? 32 : 48;
        return new PSSParameterSpec(hash, "MGF1", new MGF1ParameterSpec(hash), salt, 1);
    }

    // Signed by the token, verified by the token and by Java itself.
    static void sign(String way, PrivateKey key, PublicKey shown, AlgorithmParameterSpec parameters) throws Exception {
        byte[] data = way.startsWith("NONE") ? MessageDigest.getInstance("SHA-256").digest(DATA) : DATA;
        Signature signer = Signature.getInstance(way, provider);
        if (parameters != null) signer.setParameter(parameters);
        signer.initSign(key);
        signer.update(data, 0, 5);
        signer.update(data, 5, data.length - 5);
        byte[] signature = signer.sign();
        Signature outside = Signature.getInstance(way, way.contains("ECDSA") ? "SunEC" : "SunRsaSign");
        if (parameters != null) outside.setParameter(parameters);
        String kind = way.contains("ECDSA") ? "EC" : "RSA";
        KeyFactory factory = KeyFactory.getInstance(kind, way.contains("ECDSA") ? "SunEC" : "SunRsaSign");
        outside.initVerify(factory.generatePublic(new X509EncodedKeySpec(shown.getEncoded())));
        outside.update(data);
        check(outside.verify(signature), way + ": Java does not verify it");
        // Java shortens a P-521 signature whose numbers begin with zeros, and tokens refuse such a one.
        if (shown instanceof java.security.interfaces.ECKey key521
            && key521.getParams().getCurve().getField().getFieldSize() == 521) return;
        Signature verifier = Signature.getInstance(way, provider);
        if (parameters != null) verifier.setParameter(parameters);
        verifier.initVerify(shown);
        verifier.update(data);
        check(verifier.verify(signature), way + ": the token does not verify it");
    }

    static void seal(String way, Key seals, Key opens, AlgorithmParameterSpec parameters) throws Exception {
        byte[] plain = way.endsWith("NoPadding") ? new byte[1024] : DATA;
        Cipher cipher = Cipher.getInstance(way, provider);
        cipher.init(Cipher.ENCRYPT_MODE, seals, parameters);
        byte[] sealed = cipher.doFinal(plain);
        check(!Arrays.equals(plain, sealed), way + ": nothing is sealed");
        cipher.init(Cipher.DECRYPT_MODE, opens == null ? seals : opens, parameters);
        check(Arrays.equals(plain, cipher.doFinal(sealed)), way + ": not what it was");
    }

    static KeyPair pair(String kind, int bits, String curve) throws Exception {
        KeyPairGenerator generator = KeyPairGenerator.getInstance(kind, provider);
        if (curve == null) generator.initialize(bits);
        else generator.initialize(new ECGenParameterSpec(curve));
        return generator.generateKeyPair();
    }

    static SecretKey aes(int bits) throws Exception {
        KeyGenerator generator = KeyGenerator.getInstance("AES", provider);
        generator.init(bits);
        return generator.generateKey();
    }

    static byte[] mac(String way, SecretKey key, Provider by) throws Exception {
        Mac mac = by == null ? Mac.getInstance(way, "SunJCE") : Mac.getInstance(way, by);
        mac.init(key);
        mac.update(DATA, 0, 7);
        return mac.doFinal(Arrays.copyOfRange(DATA, 7, DATA.length));
    }

    static void agree(String curve) throws Exception {
        KeyPair ours = pair("EC", 0, curve);
        KeyPairGenerator generator = KeyPairGenerator.getInstance("EC", "SunEC");
        generator.initialize(new ECGenParameterSpec(curve));
        KeyPair theirs = generator.generateKeyPair();
        KeyAgreement here = KeyAgreement.getInstance("ECDH", provider);
        here.init(ours.getPrivate());
        here.doPhase(theirs.getPublic(), true);
        KeyAgreement there = KeyAgreement.getInstance("ECDH", "SunEC");
        there.init(theirs.getPrivate());
        KeyFactory factory = KeyFactory.getInstance("EC", "SunEC");
        there.doPhase(factory.generatePublic(new X509EncodedKeySpec(ours.getPublic().getEncoded())), true);
        check(Arrays.equals(here.generateSecret(), there.generateSecret()), "another secret");
    }

    static void threads() throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(64);
        List<Future<Void>> all = new ArrayList<>();
        for (int thread = 0; thread < 64; thread++) all.add(pool.submit(() -> {
            for (int round = 0; round < 5; round++) sign("SHA256withRSA", storedKey, storedPublic, null);
            return null;
        }));
        for (Future<Void> one : all) one.get();
        pool.shutdown();
    }

    static void rounds(int seconds) throws Exception {
        long end = System.nanoTime() + seconds * 1_000_000_000L;
        KeyPair kept = pair("EC", 0, "secp256r1");
        int rounds = 0;
        for (; System.nanoTime() < end; rounds++) {
            sign("SHA256withRSA", storedKey, storedPublic, null);
            sign("SHA256withECDSA", kept.getPrivate(), kept.getPublic(), null);
            KeyPair fresh = pair("EC", 0, "secp256r1");
            sign("SHA256withECDSA", fresh.getPrivate(), fresh.getPublic(), null);
            SecretKey key = aes(256);
            seal("AES/CBC/PKCS5Padding", key, key, new IvParameterSpec(new byte[16]));
        }
        System.out.println(rounds + " rounds");
    }
}
