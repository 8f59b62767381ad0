import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLongArray;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.time.Duration;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.JedisShardedPubSub;
import redis.clients.jedis.RedisClusterClient;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.Response;
import redis.clients.jedis.Transaction;
import redis.clients.jedis.exceptions.JedisException;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.params.SetParams;
import redis.clients.jedis.util.JedisClusterCRC16;

/** The cluster client of Jedis with the nodes that NODES names, and PROTOCOL. See run.py. */
public class Exercise {
  static RedisClusterClient client;

  interface Check {
    void run() throws Exception;
  }

  static RedisClusterClient connect() {
    Set<HostAndPort> nodes =
        Arrays.stream(System.getenv("NODES").split(",")).map(HostAndPort::from).collect(Collectors.toSet());
    var protocol = "3".equals(System.getenv("PROTOCOL")) ? RedisProtocol.RESP3 : RedisProtocol.RESP2;
    return RedisClusterClient.builder()
        .nodes(nodes)
        .clientConfig(DefaultJedisClientConfig.builder().protocol(protocol).timeoutMillis(10_000).build())
        .maxAttempts(20)
        .maxTotalRetriesDuration(Duration.ofSeconds(20))
        .build();
  }

  static void same(Object found, Object expected) {
    if (!Objects.equals(found, expected)) throw new AssertionError("expected " + expected + ", found " + found);
  }

  static void fails(Check work, String text) throws Exception {
    try {
      work.run();
    } catch (JedisException error) {
      if (error.getMessage().contains(text)) return;
      throw error;
    }
    throw new AssertionError("expected " + text);
  }

  /** Asks the runner for a fault, and waits for its end. */
  static void ask(String words, String key) throws Exception {
    System.out.println(words + " " + JedisClusterCRC16.getSlot(key));
    while (System.in.read() != '\n') {}
  }

  static void topology() throws Exception {
    same(client.getClusterNodes().size(), 3);
    for (var pool : client.getClusterNodes().values()) {
      try (var jedis = new Jedis(pool.getResource())) {
        same(jedis.clusterInfo().contains("cluster_state:ok"), true);
        same(jedis.clusterKeySlot("app:{a}"), (long) JedisClusterCRC16.getSlot("a"));
      }
    }
  }

  static void keys() throws Exception {
    for (int n = 0; n < 300; n++) same(client.set("app:" + n, "" + n), "OK");
    for (int n = 0; n < 300; n++) same(client.get("app:" + n), "" + n);
    same(client.del("app:7"), 1L);
    same(client.get("app:7"), null);
    same(client.mset("{tag}a", "1", "{tag}b", "2"), "OK");
    same(client.mget("{tag}a", "{tag}b"), List.of("1", "2"));
  }

  static void pipeline() throws Exception {
    List<Response<String>> gets = new ArrayList<>();
    try (var pipe = client.pipelined()) {
      for (int n = 0; n < 1000; n++) {
        pipe.set("app:pipe:" + n, "" + n);
        gets.add(pipe.get("app:pipe:" + n));
      }
      pipe.sync();
    }
    for (int n = 0; n < 1000; n++) same(gets.get(n).get(), "" + n);
  }

  static void transaction() throws Exception {
    // A transaction needs a connection to the node that has the slot.
    try (var node = client.getConnectionFromSlot(JedisClusterCRC16.getSlot("tag")); var multi = new Transaction(node)) {
      multi.set("{tag}n", "1");
      multi.incr("{tag}n");
      multi.get("{tag}n");
      same(multi.exec(), List.of("OK", 2L, "2"));
    }
  }

  static void scripts() throws Exception {
    String text = "redis.call('set', KEYS[1], ARGV[1]); return redis.call('incr', KEYS[1])";
    for (int n = 0; n < 30; n++) same(client.eval(text, 1, "app:script:" + n, "" + n), n + 1L);
    String digest = client.scriptLoad(text, "app:script:1");
    same(client.evalsha(digest, List.of("app:script:1"), List.of("4")), 5L);
    fails(() -> client.eval("return 1", 2, "app:1", "app:2"), "");
  }

  static void scan() throws Exception {
    client.flushAll();
    for (int n = 0; n < 500; n++) client.set("app:scan:" + n, "" + n);
    Set<String> found = new HashSet<>();
    for (var pool : client.getClusterNodes().values()) {
      try (var jedis = new Jedis(pool.getResource())) {
        String cursor = ScanParams.SCAN_POINTER_START;
        do {
          var page = jedis.scan(cursor, new ScanParams().match("app:scan:*").count(50));
          found.addAll(page.getResult());
          cursor = page.getCursor();
        } while (!cursor.equals("0"));
      }
    }
    same(found.size(), 500);
    same(client.dbSize(), 500L);
  }

  static void expiry() throws Exception {
    for (int n = 0; n < 20; n++) client.set("app:short:" + n, "1", SetParams.setParams().px(60));
    Thread.sleep(100);
    for (int n = 0; n < 20; n++) same(client.get("app:short:" + n), null);
  }

  /** Publishes until a message arrives. */
  static void hears(Runnable listen, CountDownLatch heard, Runnable publish) throws Exception {
    Thread listener = new Thread(listen);
    listener.setDaemon(true);
    listener.start();
    for (int n = 0; n < 100; n++) {
      publish.run();
      if (heard.await(100, TimeUnit.MILLISECONDS)) return;
    }
    throw new AssertionError("no message arrives");
  }

  static void messages() throws Exception {
    var heard = new CountDownLatch(1);
    var shard = new JedisShardedPubSub() {
      @Override
      public void onSMessage(String channel, String message) {
        same(message, "hello");
        heard.countDown();
      }
    };
    hears(() -> client.ssubscribe(shard, "app:shard"), heard, () -> client.spublish("app:shard", "hello"));
    var plain = new CountDownLatch(1);
    var channel = new JedisPubSub() {
      @Override
      public void onMessage(String channel, String message) {
        same(message, "hello");
        plain.countDown();
      }
    };
    hears(() -> client.subscribe(channel, "app:channel"), plain, () -> client.publish("app:channel", "hello"));
  }

  static void moved() throws Exception {
    for (int n = 0; n < 20; n++) client.set("{moved}" + n, "" + n);
    ask("transfer the slot", "moved");
    for (int n = 0; n < 20; n++) same(client.get("{moved}" + n), "" + n);
    same(client.incr("{moved}0"), 1L);
  }

  static volatile boolean ends;

  static void kill() throws Exception {
    Map<String, String> acknowledged = new ConcurrentHashMap<>();
    List<String> errors = java.util.Collections.synchronizedList(new ArrayList<>());
    var late = new AtomicLongArray(4);
    List<Thread> writers = new ArrayList<>();
    for (int number = 0; number < 4; number++) {
      final int own = number;
      writers.add(new Thread(() -> {
        for (int count = 1; !ends; count++) {
          String key = "app:kill:" + own + ":" + count % 100;
          try {
            client.set(key, "" + count);
            acknowledged.put(key, "" + count);
            late.set(own, System.nanoTime());
          } catch (JedisException error) {
            errors.add(error.toString());
            acknowledged.remove(key); // its outcome is open
          }
        }
      }));
    }
    writers.forEach(Thread::start);
    Thread.sleep(500);
    ask("kill the leader of the slot", "app:kill:0:1");
    long since = System.nanoTime();
    while (IntStream.range(0, 4).anyMatch(number -> late.get(number) - since < 0)) Thread.sleep(100);
    ends = true;
    for (Thread writer : writers) writer.join();
    for (var entry : acknowledged.entrySet()) same(client.get(entry.getKey()), entry.getValue());
    System.out.println("   " + errors.size() + " errors reached the writers: " + errors.stream().findFirst());
  }

  public static void main(String[] arguments) throws Exception {
    client = connect();
    Map<String, Check> checks = new LinkedHashMap<>();
    checks.put("topology", Exercise::topology);
    checks.put("keys", Exercise::keys);
    checks.put("pipeline", Exercise::pipeline);
    checks.put("transaction", Exercise::transaction);
    checks.put("scripts", Exercise::scripts);
    checks.put("scan", Exercise::scan);
    checks.put("expiry", Exercise::expiry);
    checks.put("messages", Exercise::messages);
    checks.put("moved", Exercise::moved);
    checks.put("kill", Exercise::kill);
    for (var check : checks.entrySet()) {
      check.getValue().run();
      System.out.println("ok " + check.getKey());
    }
    System.exit(0);
  }
}
