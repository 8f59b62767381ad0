import io.lettuce.core.LettuceFutures;
import io.lettuce.core.RedisException;
import io.lettuce.core.RedisFuture;
import io.lettuce.core.RedisURI;
import io.lettuce.core.ScanArgs;
import io.lettuce.core.ScanIterator;
import io.lettuce.core.ScriptOutputType;
import io.lettuce.core.SetArgs;
import io.lettuce.core.cluster.ClusterClientOptions;
import io.lettuce.core.cluster.ClusterTopologyRefreshOptions;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.cluster.SlotHash;
import io.lettuce.core.cluster.api.StatefulRedisClusterConnection;
import io.lettuce.core.cluster.api.sync.RedisAdvancedClusterCommands;
import io.lettuce.core.cluster.pubsub.RedisClusterPubSubAdapter;
import io.lettuce.core.cluster.models.partitions.RedisClusterNode;
import io.lettuce.core.protocol.ProtocolVersion;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
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
import java.util.stream.IntStream;

/** The cluster client of Lettuce with the nodes that NODES names, and PROTOCOL. See run.py. */
public class Exercise {
  static RedisClusterClient cluster;
  static StatefulRedisClusterConnection<String, String> connection;
  static RedisAdvancedClusterCommands<String, String> client;

  interface Check {
    void run() throws Exception;
  }

  static void connect() {
    List<RedisURI> nodes =
        Arrays.stream(System.getenv("NODES").split(",")).map(node -> RedisURI.create("redis://" + node)).toList();
    cluster = RedisClusterClient.create(nodes);
    var refresh = ClusterTopologyRefreshOptions.builder()
        .enableAllAdaptiveRefreshTriggers()
        .adaptiveRefreshTriggersTimeout(Duration.ofMillis(200))
        .enablePeriodicRefresh(Duration.ofSeconds(1))
        .build();
    cluster.setOptions(ClusterClientOptions.builder()
        .protocolVersion("3".equals(System.getenv("PROTOCOL")) ? ProtocolVersion.RESP3 : ProtocolVersion.RESP2)
        .topologyRefreshOptions(refresh)
        .maxRedirects(20)
        .build());
    connection = cluster.connect();
    connection.setTimeout(Duration.ofSeconds(10));
    client = connection.sync();
  }

  static void same(Object found, Object expected) {
    if (!Objects.equals(found, expected)) throw new AssertionError("expected " + expected + ", found " + found);
  }

  static void fails(Check work, String text) throws Exception {
    try {
      work.run();
    } catch (RedisException error) {
      if (error.getMessage().contains(text)) return;
      throw error;
    }
    throw new AssertionError("expected " + text);
  }

  /** Asks the runner for a fault, and waits for its end. */
  static void ask(String words, String key) throws Exception {
    System.out.println(words + " " + SlotHash.getSlot(key));
    while (System.in.read() != '\n') {}
  }

  static void topology() throws Exception {
    same(cluster.getPartitions().size(), 3);
    same(client.clusterInfo().contains("cluster_state:ok"), true);
    same(client.clusterKeyslot("app:{a}"), (long) SlotHash.getSlot("a"));
    for (RedisClusterNode node : cluster.getPartitions()) same(client.getConnection(node.getNodeId()).ping(), "PONG");
  }

  static void keys() throws Exception {
    for (int n = 0; n < 300; n++) same(client.set("app:" + n, "" + n), "OK");
    for (int n = 0; n < 300; n++) same(client.get("app:" + n), "" + n);
    same(client.del("app:7"), 1L);
    same(client.get("app:7"), null);
    // Lettuce splits these by slots.
    Map<String, String> many = new HashMap<>();
    IntStream.range(0, 100).forEach(n -> many.put("app:m" + n, "" + n));
    same(client.mset(many), "OK");
    for (var found : client.mget(many.keySet().toArray(String[]::new))) same(found.getValue(), many.get(found.getKey()));
  }

  static void pipeline() throws Exception {
    List<RedisFuture<String>> gets = new ArrayList<>();
    var async = connection.async();
    for (int n = 0; n < 1000; n++) {
      async.set("app:pipe:" + n, "" + n);
      gets.add(async.get("app:pipe:" + n));
    }
    same(LettuceFutures.awaitAll(Duration.ofSeconds(10), gets.toArray(RedisFuture[]::new)), true);
    for (int n = 0; n < 1000; n++) same(gets.get(n).get(), "" + n);
  }

  static void transaction() throws Exception {
    // A transaction needs the connection of the node that has the slot.
    var node = cluster.getPartitions().getPartitionBySlot(SlotHash.getSlot("tag")).getNodeId();
    var one = connection.getConnection(node).sync();
    one.multi();
    one.set("{tag}n", "1");
    one.incr("{tag}n");
    one.get("{tag}n");
    same(one.exec().stream().toList(), List.of("OK", 2L, "2"));
  }

  static void scripts() throws Exception {
    String text = "redis.call('set', KEYS[1], ARGV[1]); return redis.call('incr', KEYS[1])";
    for (int n = 0; n < 30; n++) {
      same(client.eval(text, ScriptOutputType.INTEGER, new String[] {"app:script:" + n}, "" + n), n + 1L);
    }
    String digest = client.scriptLoad(text);
    same(client.evalsha(digest, ScriptOutputType.INTEGER, new String[] {"app:script:1"}, "4"), 5L);
    fails(() -> client.eval("return 1", ScriptOutputType.INTEGER, "app:1", "app:2"), "CROSSSLOT");
  }

  static void scan() throws Exception {
    client.flushall();
    for (int n = 0; n < 500; n++) client.set("app:scan:" + n, "" + n);
    Set<String> found = new HashSet<>();
    ScanIterator.scan(client, ScanArgs.Builder.matches("app:scan:*").limit(50)).forEachRemaining(found::add);
    same(found.size(), 500);
    same(client.dbsize(), 500L);
  }

  static void expiry() throws Exception {
    for (int n = 0; n < 20; n++) client.set("app:short:" + n, "1", SetArgs.Builder.px(60));
    Thread.sleep(100);
    for (int n = 0; n < 20; n++) same(client.get("app:short:" + n), null);
  }

  static void messages() throws Exception {
    var listener = cluster.connectPubSub();
    var heard = new CountDownLatch(1);
    var sheard = new CountDownLatch(1);
    listener.addListener(new RedisClusterPubSubAdapter<String, String>() {
      @Override
      public void message(RedisClusterNode node, String channel, String message) {
        heard.countDown();
      }

      @Override
      public void smessage(RedisClusterNode node, String channel, String message) {
        sheard.countDown();
      }
    });
    listener.addListener(new io.lettuce.core.pubsub.RedisPubSubAdapter<String, String>() {
      @Override
      public void message(String channel, String message) {
        heard.countDown();
      }

      @Override
      public void smessage(String channel, String message) {
        sheard.countDown();
      }
    });
    listener.sync().subscribe("app:channel");
    listener.sync().ssubscribe("app:shard");
    for (int n = 0; n < 100 && heard.getCount() + sheard.getCount() > 0; n++) {
      client.publish("app:channel", "hello");
      client.spublish("app:shard", "hello");
      Thread.sleep(100);
    }
    same(List.of(heard.getCount(), sheard.getCount()), List.of(0L, 0L));
    listener.close();
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
    List<String> errors = Collections.synchronizedList(new ArrayList<>());
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
          } catch (RedisException error) {
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
    connect();
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
