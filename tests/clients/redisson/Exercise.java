import java.io.FileInputStream;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import javax.net.ssl.TrustManagerFactory;
import org.redisson.Redisson;
import org.redisson.api.RScript;
import org.redisson.api.RedissonClient;
import org.redisson.client.RedisException;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;
import org.redisson.config.Protocol;

/** Redisson's objects that are strings; of the others it is said by name what they need. See run.py. */
public class Exercise {
  static RedissonClient client;

  interface Check {
    void run() throws Exception;
  }

  static String variable(String name) {
    String value = System.getenv(name);
    return value == null || value.isEmpty() ? null : value;
  }

  static RedissonClient connect() throws Exception {
    var config = new Config();
    config.setProtocol("3".equals(variable("PROTOCOL")) ? Protocol.RESP3 : Protocol.RESP2);
    config.setUsername(variable("LOGIN")).setPassword(variable("PASSWORD"));
    if (variable("CA") != null) config.setSslTrustManagerFactory(trusting(variable("CA")));
    String scheme = variable("CA") != null ? "rediss" : "redis";
    config.useSingleServer()
        .setAddress(scheme + "://" + variable("HOST") + ":" + variable("PORT"))
        .setConnectionMinimumIdleSize(4)
        .setConnectionPoolSize(16);
    return Redisson.create(config);
  }

  static TrustManagerFactory trusting(String file) throws Exception {
    var store = KeyStore.getInstance(KeyStore.getDefaultType());
    store.load(null, null);
    try (var in = new FileInputStream(file)) {
      store.setCertificateEntry("ca", CertificateFactory.getInstance("X.509").generateCertificate(in));
    }
    var trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
    trust.init(store);
    return trust;
  }

  static void same(Object found, Object expected) {
    if (!Objects.equals(found, expected)) throw new AssertionError("expected " + expected + ", found " + found);
  }

  static void refused(String text, Callable<Object> work) throws Exception {
    try {
      throw new AssertionError("expected " + text + ", found " + work.call());
    } catch (RedisException error) {
      if (!error.getMessage().contains(text)) throw error;
    }
  }

  static void together(int count, Callable<Void> work) throws Exception {
    var threads = Executors.newFixedThreadPool(count);
    var all = new ArrayList<Future<Void>>();
    for (int n = 0; n < count; n++) all.add(threads.submit(work));
    for (var each : all) each.get();
    threads.shutdown();
  }

  static void buckets() throws Exception {
    var bucket = client.<List<String>>getBucket("app:bucket");
    bucket.set(List.of("a", "b"), Duration.ofSeconds(100));
    same(bucket.get(), List.of("a", "b"));
    long left = bucket.remainTimeToLive();
    same(left > 90_000 && left <= 100_000, true);
    same(List.of(bucket.setIfAbsent(List.of("c")), bucket.setIfExists(List.of("c"))), List.of(false, true));
    same(List.of(bucket.compareAndSet(List.of("a"), List.of("d")), bucket.compareAndSet(List.of("c"), List.of("d"))), List.of(false, true));
    same(bucket.getAndSet(List.of("e")), List.of("d"));
    same(bucket.getAndDelete(), List.of("e"));
    same(bucket.isExists(), false);
    bucket.set(List.of("f"), Duration.ofMillis(100));
    Thread.sleep(150);
    same(bucket.get(), null);
    var several = client.getBuckets();
    several.set(Map.of("app:b1", 1, "app:b2", 2));
    same(several.get("app:b1", "app:b2", "app:absent"), Map.of("app:b1", 1, "app:b2", 2));
    same(several.trySet(Map.of("app:b2", 3, "app:b3", 3)), false);
    byte[] large = new byte[8 << 20];
    client.<byte[]>getBucket("app:large").set(large);
    same(client.<byte[]>getBucket("app:large").get().length, large.length);
  }

  static void numbers() throws Exception {
    var number = client.getAtomicLong("app:number");
    together(4, () -> {
      for (int n = 0; n < 50; n++) number.incrementAndGet();
      return null;
    });
    same(List.of(number.get(), number.compareAndSet(200, 7), number.compareAndSet(200, 8)), List.of(200L, true, false));
    same(List.of(number.getAndAdd(3), number.getAndSet(1), number.decrementAndGet()), List.of(7L, 10L, 0L));
    var real = client.getAtomicDouble("app:real");
    same(real.addAndGet(1.5), 1.5);
    var numbers = client.getIdGenerator("app:ids");
    numbers.tryInit(1, 10);
    var ids = ConcurrentHashMap.<Long>newKeySet();
    together(4, () -> {
      for (int n = 0; n < 25; n++) ids.add(numbers.nextId());
      return null;
    });
    same(ids.size(), 100);
  }

  static void bits() {
    var bits = client.getBitSet("app:bits");
    bits.set(3, true);
    bits.set(10, 20);
    same(List.of(bits.cardinality(), bits.get(3), bits.get(4), bits.length()), List.of(11L, true, false, 20L));
    var people = client.<Integer>getHyperLogLog("app:people");
    for (int n = 0; n < 1000; n++) people.add(n);
    same(people.count() > 950 && people.count() < 1050, true);
  }

  static void batch() {
    var batch = client.createBatch();
    for (int n = 0; n < 1000; n++) batch.getAtomicLong("app:batch").incrementAndGetAsync();
    same(batch.execute().getResponses().get(999), 1000L);
  }

  static void keys() {
    for (int n = 0; n < 300; n++) client.getBucket("app:keys:" + n, StringCodec.INSTANCE).set("v");
    var found = new HashSet<String>();
    client.getKeys().getKeys(org.redisson.api.options.KeysScanOptions.defaults().pattern("app:keys:*").chunkSize(50))
        .forEach(found::add);
    same(found.size(), 300);
    same(client.getKeys().deleteByPattern("app:keys:*"), 300L);
    same(client.getBucket("app:keys:7").isExists(), false);
  }

  static void scripts() {
    String told = client.getScript(StringCodec.INSTANCE).eval("app:k",
        RScript.Mode.READ_WRITE, "return redis.call('INCR', KEYS[1]) .. ARGV[1]", RScript.ReturnType.STRING,
        List.of("app:k"), "!");
    same(told, "1!");
  }

  static void semaphore() throws Exception {
    var semaphore = client.getSemaphore("app:semaphore");
    same(semaphore.trySetPermits(3), true);
    var inside = new AtomicInteger();
    var most = new AtomicInteger();
    together(10, () -> {
      for (int n = 0; n < 5; n++) {
        semaphore.acquire();
        most.accumulateAndGet(inside.incrementAndGet(), Math::max);
        Thread.sleep(1);
        inside.decrementAndGet();
        semaphore.release();
      }
      return null;
    });
    same(most.get() <= 3, true);
    same(semaphore.availablePermits(), 3);
    var latch = client.getCountDownLatch("app:latch");
    latch.trySetCount(3);
    var waiting = Executors.newSingleThreadExecutor();
    var done = waiting.submit(() -> latch.await(20, TimeUnit.SECONDS));
    for (int n = 0; n < 3; n++) latch.countDown();
    same(done.get(), true);
    waiting.shutdown();
  }

  static void topic() throws Exception {
    var heard = new CountDownLatch(10);
    var topic = client.getTopic("app:topic");
    int listener = topic.addListener(String.class, (channel, message) -> heard.countDown());
    for (int n = 0; n < 10; n++) same(topic.publish("" + n), 1L);
    same(heard.await(5, TimeUnit.SECONDS), true);
    topic.removeListener(listener);
  }

  /** These keep more than strings. */
  static void refusals() throws Exception {
    refused("is a command of hashes", () -> client.getMap("app:map").put("k", "v"));
    refused("is a command of lists", () -> client.getList("app:list").add("v"));
    refused("is a command of hashes", () -> client.getLock("app:lock").tryLock());
  }

  public static void main(String[] arguments) throws Exception {
    client = connect();
    check("buckets", Exercise::buckets);
    check("numbers", Exercise::numbers);
    check("bits", Exercise::bits);
    check("batch", Exercise::batch);
    check("keys", Exercise::keys);
    check("scripts", Exercise::scripts);
    check("semaphore", Exercise::semaphore);
    check("topic", Exercise::topic);
    check("refusals", Exercise::refusals);
    client.shutdown();
  }

  static void check(String name, Check check) throws Exception {
    check.run();
    System.out.println("ok " + name);
  }
}
