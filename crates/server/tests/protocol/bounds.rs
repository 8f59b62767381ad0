//! What one client may ask for is bounded where a few bytes could ask for much: answers of transactions, names, patterns,
//! arguments that are too long.

use crate::client::{Running, command, plain};

#[tokio::test]
async fn names_are_short() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    let (fits, long) = ("n".repeat(256), "n".repeat(257));
    for (words, what) in [
        (&["CLIENT", "SETNAME"][..], "Client names"),
        (&["CLIENT", "SETINFO", "lib-name"], "lib-name"),
        (&["CLIENT", "SETINFO", "lib-ver"], "lib-ver"),
    ] {
        let given = |name: &str| command(&[words, &[name]].concat());
        client.send(given(&fits)).await;
        client.expect("+OK\r\n").await;
        client.send(given(&long)).await;
        client.expect(format!("-ERR {what} cannot be longer than 256 bytes.\r\n")).await;
    }
    client.send(format!("HELLO 2 SETNAME {long}\r\n")).await;
    client.expect("-ERR Client names cannot be longer than 256 bytes.\r\n").await;
    let listed = client.text("CLIENT LIST").await;
    assert!(
        listed.contains(&format!("name={fits} ")) && listed.contains(&format!("lib-ver={fits}\n")),
        "{listed}"
    );
}
