//! The virtual slot: a PKCS#11 module that shows a group of keyraft members as one token.
