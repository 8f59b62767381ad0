//! PUBLISH and its subscribers on other nodes.

use super::start;

#[tokio::test]
async fn published_messages_reach_subscribers_of_other_nodes() {
    let (server, cluster) = start().await;
    let (mut listener, mut client) = (server.client().await, server.client().await);
    listener.ask("SUBSCRIBE news", "*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n").await;
    let message = |text: &str| format!("*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n${}\r\n{text}\r\n", text.len());
    // A message of this node goes to both, and is counted here alone, as in Redis Cluster.
    client.ask("PUBLISH news one", ":1\r\n").await;
    listener.expect(message("one")).await;
    client.ask("PUBLISH other two", ":0\r\n").await;
    client.ask("EVAL \"return redis.call('publish', 'news', 'three')\" 0", ":1\r\n").await;
    listener.expect(message("three")).await;
    client.ask("MULTI", "+OK\r\n").await;
    client.ask("PUBLISH news four", "+QUEUED\r\n").await;
    client.ask("EXEC", "*1\r\n:1\r\n").await;
    listener.expect(message("four")).await;
    assert_eq!(cluster.state().published, ["news: one", "other: two", "news: three", "news: four"]);
    // A message of another node is not sent back to it.
    cluster.receive("news", "five");
    listener.expect(message("five")).await;
    // A shard channel has its subscribers on one node.
    client.ask("SPUBLISH b six", ":0\r\n").await;
    assert_eq!(cluster.state().published.len(), 4);
}
