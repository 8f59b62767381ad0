import java.io.FileInputStream;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.function.Supplier;
import java.util.stream.IntStream;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLSocketFactory;
import javax.net.ssl.TrustManagerFactory;
import redis.clients.jedis.AbstractTransaction;
import redis.clients.jedis.ConnectionPoolConfig;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.Protocol.Command;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.Response;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.params.SetParams;
import redis.clients.jedis.util.SafeEncoder;

/** Jedis against the server that HOST, PORT, PROTOCOL, LOGIN, PASSWORD and CA tell of. See run.py. */
public class Exercise {
  static final String login = variable("LOGIN");
  static RedisClient client;

  interface Check {
    void run() throws Exception;
  }

  static String variable(String name) {
    String value = System.getenv(name);
    return value == null || value.isEmpty() ? null : value;
  }

  static RedisClient connect() throws Exception {
    var config = DefaultJedisClientConfig.builder()
        .protocol("3".equals(variable("PROTOCOL")) ? RedisProtocol.RESP3 : RedisProtocol.RESP2)
        .user(login)
        .password(variable("PASSWORD"))
        .timeoutMillis(10_000);
    if (variable("CA") != null) config.ssl(true).sslSocketFactory(trusting(variable("CA")));
    var pool = new ConnectionPoolConfig();
    pool.setMaxTotal(8);
    return RedisClient.builder()
        .hostAndPort(new HostAndPort(variable("HOST"), Integer.parseInt(variable("PORT"))))
        .clientConfig(config.build())
        .poolConfig(pool)
        .build();
  }

  static SSLSocketFactory trusting(String file) throws Exception {
    var store = KeyStore.getInstance(KeyStore.getDefaultType());
    store.load(null, null);
    try (var in = new FileInputStream(file)) {
      store.setCertificateEntry("ca", CertificateFactory.getInstance("X.509").generateCertificate(in));
    }
    var trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
    trust.init(store);
    var context = SSLContext.getInstance("TLS");
    context.init(null, trust.getTrustManagers(), null);
    return context.getSocketFactory();
  }

  static void same(Object found, Object expected) {
    if (!Objects.equals(found, expected)) throw new AssertionError("expected " + expected + ", found " + found);
  }

  static void refused(String start, Supplier<Object> command) {
    try {
      throw new AssertionError("expected " + start + ", found " + command.get());
    } catch (JedisDataException error) {
      if (!error.getMessage().startsWith(start)) throw error;
    }
  }

  static void together(int count, Check work) throws Exception {
    var threads = Executors.newFixedThreadPool(count);
    Callable<Object> call = () -> { work.run(); return null; };
    var running = new ArrayList<Future<Object>>();
    for (int n = 0; n < count; n++) running.add(threads.submit(call));
    for (var one : running) one.get();
    threads.shutdown();
  }

  static String text(Object reply) {
    return SafeEncoder.encode((byte[]) reply);
  }

  static void handshake() {
    same(client.ping(), "PONG");
    same((Long) client.sendCommand(Command.CLIENT, "ID") > 0, true);
    same(text(client.sendCommand(Command.ACL, "WHOAMI")), login == null ? "default" : login);
    String info = text(client.sendCommand(Command.CLIENT, "INFO"));
    same(info.contains("lib-name=jedis"), true);
    same(client.info().contains("redis_version"), true);
  }

  static void binary() {
    byte[] key = {'a', 'p', 'p', ':', 0, '\r', '\n', -1};
    byte[] value = new byte[256];
    for (int n = 0; n < value.length; n++) value[n] = (byte) n;
    client.set(key, value);
    same(Arrays.equals(client.get(key), value), true);
    client.set("app:empty", "");
    same(client.get("app:empty"), "");
    same(client.get("app:absent"), null);
  }

  static void pipeline() {
    var gets = new ArrayList<Response<String>>();
    try (Pipeline pipe = client.pipelined()) {
      for (int n = 0; n < 1000; n++) {
        pipe.set("app:pipe:" + n, "" + n);
        gets.add(pipe.get("app:pipe:" + n));
      }
      pipe.sync();
    }
    for (int n = 0; n < 1000; n++) same(gets.get(n).get(), "" + n);
  }

  static void transaction() throws Exception {
    try (AbstractTransaction tx = client.multi()) {
      tx.set("app:a", "1");
      tx.incr("app:a");
      tx.get("app:a");
      same(tx.exec(), List.of("OK", 2L, "2"));
    }
    together(4, () -> {
      for (int n = 0; n < 25; n++) while (!addOne()) {}
    });
    same(client.get("app:watched"), "100");
  }

  static boolean addOne() {
    try (AbstractTransaction tx = client.transaction(false)) {
      tx.watch("app:watched");
      String value = client.get("app:watched");
      tx.multi();
      tx.set("app:watched", "" + (value == null ? 1 : Integer.parseInt(value) + 1));
      return tx.exec() != null;
    }
  }

  static void expiry() throws Exception {
    client.set("app:short", "1", SetParams.setParams().px(60));
    client.set("app:long", "1", SetParams.setParams().ex(100));
    long left = client.ttl("app:long");
    same(left > 0 && left <= 100, true);
    same(client.persist("app:long"), 1L);
    same(List.of(client.ttl("app:long"), client.ttl("app:absent")), List.of(-1L, -2L));
    Thread.sleep(100);
    same(client.get("app:short"), null);
  }

  static void scan() {
    client.mset(IntStream.range(0, 500).boxed()
        .flatMap(n -> List.of("app:scan:" + n, "" + n).stream()).toArray(String[]::new));
    Set<String> found = new HashSet<>();
    String cursor = ScanParams.SCAN_POINTER_START;
    do {
      var page = client.scan(cursor, new ScanParams().match("app:scan:*").count(50));
      found.addAll(page.getResult());
      cursor = page.getCursor();
    } while (!cursor.equals(ScanParams.SCAN_POINTER_START));
    same(found.size(), 500);
  }

  static void numbers() {
    same(List.of(client.incr("app:n"), client.incrBy("app:n", 41), client.decr("app:n")), List.of(1L, 42L, 41L));
    same(client.incrByFloat("app:f", 1.5), 1.5);
    client.mset("app:m1", "1", "app:m2", "2");
    same(client.mget("app:m1", "app:absent", "app:m2"), Arrays.asList("1", null, "2"));
    same(client.del("app:m1", "app:m2"), 2L);
  }

  static void errors() {
    client.set("app:text", "x");
    refused("ERR value is not an integer or out of range", () -> client.incr("app:text"));
    refused("ERR Esker serves strings: LPUSH", () -> client.lpush("app:list", "x"));
    refused("ERR wrong number of arguments for 'get' command", () -> client.sendCommand(Command.GET));
    if (login != null) {
      refused("NOPERM", () -> client.get("other"));
      refused("NOPERM", () -> client.flushAll());
    }
  }

  static void large() {
    byte[] key = SafeEncoder.encode("app:large");
    byte[] value = new byte[8 << 20];
    new Random().nextBytes(value);
    client.set(key, value);
    same(Arrays.equals(client.get(key), value), true);
  }

  static void pool() throws Exception {
    together(16, () -> {
      String key = "app:pool:" + Thread.currentThread().getId();
      for (int n = 0; n < 25; n++) {
        client.set(key, "" + n);
        same(client.get(key), "" + n);
      }
    });
  }

  static void restart() throws Exception {
    String[] keys = IntStream.range(0, 100).mapToObj(n -> "app:kept:" + n).toArray(String[]::new);
    List<String> values = IntStream.range(0, 100).mapToObj(n -> "" + n).toList();
    for (int n = 0; n < keys.length; n++) client.set(keys[n], values.get(n));
    System.out.println("kill the server");
    System.in.read();
    // Jedis leaves it to its callers to try again; each try throws away one connection that is dead.
    for (int tries = 0; ; tries++) {
      try {
        same(client.mget(keys), values);
        break;
      } catch (JedisConnectionException error) {
        if (tries == 50) throw error;
        Thread.sleep(100);
      }
    }
    same(client.incr("app:n"), 42L);
  }

  public static void main(String[] arguments) throws Exception {
    client = connect();
    Map<String, Check> checks = new LinkedHashMap<>();
    checks.put("handshake", Exercise::handshake);
    checks.put("binary", Exercise::binary);
    checks.put("pipeline", Exercise::pipeline);
    checks.put("transaction", Exercise::transaction);
    checks.put("expiry", Exercise::expiry);
    checks.put("scan", Exercise::scan);
    checks.put("numbers", Exercise::numbers);
    checks.put("errors", Exercise::errors);
    checks.put("large", Exercise::large);
    checks.put("pool", Exercise::pool);
    checks.put("restart", Exercise::restart);
    for (var check : checks.entrySet()) {
      check.getValue().run();
      System.out.println("ok " + check.getKey());
    }
    System.exit(0);
  }
}
