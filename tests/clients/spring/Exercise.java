import io.lettuce.core.ClientOptions;
import io.lettuce.core.LettuceFutures;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisFuture;
import io.lettuce.core.RedisURI;
import io.lettuce.core.SslOptions;
import io.lettuce.core.protocol.ProtocolVersion;
import java.io.File;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.TreeSet;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.Callable;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.IntStream;
import org.springframework.cache.Cache;
import org.springframework.cache.annotation.CacheEvict;
import org.springframework.cache.annotation.Cacheable;
import org.springframework.cache.annotation.EnableCaching;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.data.redis.cache.RedisCacheConfiguration;
import org.springframework.data.redis.cache.RedisCacheManager;
import org.springframework.data.redis.cache.RedisCacheWriter;
import org.springframework.data.redis.connection.RedisStandaloneConfiguration;
import org.springframework.data.redis.connection.lettuce.LettuceClientConfiguration;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import org.springframework.data.redis.core.RedisCallback;
import org.springframework.data.redis.core.RedisOperations;
import org.springframework.data.redis.core.ScanOptions;
import org.springframework.data.redis.core.SessionCallback;
import org.springframework.data.redis.core.StringRedisTemplate;
import org.springframework.data.redis.core.script.RedisScript;
import org.springframework.data.redis.listener.ChannelTopic;
import org.springframework.data.redis.listener.RedisMessageListenerContainer;
import org.springframework.data.redis.support.atomic.RedisAtomicLong;

/** Spring Data Redis, its cache and its templates, over Lettuce, and Lettuce itself. See run.py. */
public class Exercise {
  static LettuceConnectionFactory factory;
  static StringRedisTemplate template;

  interface Check {
    void run() throws Exception;
  }

  static String variable(String name) {
    String value = System.getenv(name);
    return value == null || value.isEmpty() ? null : value;
  }

  static void same(Object found, Object expected) {
    if (!Objects.equals(found, expected)) throw new AssertionError("expected " + expected + ", found " + found);
  }

  static void together(int count, Callable<Void> work) throws Exception {
    var threads = Executors.newFixedThreadPool(count);
    var all = new ArrayList<Future<Void>>();
    for (int n = 0; n < count; n++) all.add(threads.submit(work));
    for (var each : all) each.get();
    threads.shutdown();
  }

  /** What an application has: a cache of a minute, and a service that uses it by annotations. */
  @Configuration
  @EnableCaching
  static class Application {
    @Bean
    LettuceConnectionFactory factory() {
      var server = new RedisStandaloneConfiguration(variable("HOST"), Integer.parseInt(variable("PORT")));
      server.setUsername(variable("LOGIN"));
      if (variable("PASSWORD") != null) server.setPassword(variable("PASSWORD"));
      var version = "3".equals(variable("PROTOCOL")) ? ProtocolVersion.RESP3 : ProtocolVersion.RESP2;
      var options = ClientOptions.builder().protocolVersion(version);
      var config = LettuceClientConfiguration.builder();
      if (variable("CA") != null) {
        options.sslOptions(SslOptions.builder().jdkSslProvider().trustManager(new File(variable("CA"))).build());
        config.useSsl();
      }
      return new LettuceConnectionFactory(server, config.clientOptions(options.build()).build());
    }

    @Bean
    RedisCacheManager cacheManager(LettuceConnectionFactory factory) {
      var defaults = RedisCacheConfiguration.defaultCacheConfig()
          .prefixCacheNameWith("app:")
          .entryTtl(Duration.ofMinutes(1));
      // Without immediate writes Spring goes on before the server has the value, and may read what was there before.
      return RedisCacheManager.builder(RedisCacheWriter.create(factory, writer -> writer.immediateWrites()))
          .cacheDefaults(defaults)
          .withCacheConfiguration("short", defaults.entryTtl(Duration.ofMillis(100)))
          .build();
    }

    @Bean
    Squares squares() {
      return new Squares();
    }
  }

  static class Squares {
    final AtomicInteger asked = new AtomicInteger();

    @Cacheable(cacheNames = "squares", key = "#root.args[0]")
    public Integer of(Integer number) {
      asked.incrementAndGet();
      return number * number;
    }

    @CacheEvict(cacheNames = "squares", key = "#root.args[0]")
    public void forget(Integer number) {}

    public int askedTimes() {
      return asked.get();
    }
  }

  static void annotations(Squares squares) {
    same(List.of(squares.of(3), squares.of(3), squares.of(4), squares.askedTimes()), List.of(9, 9, 16, 2));
    squares.forget(3);
    same(List.of(squares.of(3), squares.of(4), squares.askedTimes()), List.of(9, 16, 3));
    same(template.hasKey("app:squares::3"), true);
  }

  static void cache(RedisCacheManager manager) throws Exception {
    Cache cache = manager.getCache("pages");
    var value = new ArrayList<>(List.of("a", 1, List.of(2.5)));
    cache.put("k", value);
    same(cache.get("k").get(), value);
    same(cache.get("absent"), null);
    same(cache.putIfAbsent("k", "other").get(), value);
    same(cache.putIfAbsent("new", "first"), null);
    long left = template.getExpire("app:pages::k", TimeUnit.MILLISECONDS);
    same(left > 0 && left <= 60_000, true);
    same(List.of(cache.evictIfPresent("new"), cache.evictIfPresent("new")), List.of(true, false));
    for (int n = 0; n < 300; n++) cache.put("n" + n, n);
    manager.getCache("other").put("kept", 1);
    cache.clear();
    same(cache.get("n7"), null);
    same(manager.getCache("other").get("kept").get(), 1);
    Cache brief = manager.getCache("short");
    brief.put("k", 1);
    Thread.sleep(150);
    same(brief.get("k"), null);
  }

  /** The writer that keeps others out with a key beside the cache. */
  static void locking() throws Exception {
    var manager = RedisCacheManager.builder(RedisCacheWriter.lockingRedisCacheWriter(factory)).build();
    Cache cache = manager.getCache("app:locked");
    var made = new AtomicInteger();
    together(8, () -> {
      same(cache.get("k", () -> made.incrementAndGet()), 1);
      return null;
    });
    same(made.get(), 1);
    same(template.hasKey("app:locked~lock"), false);
  }

  static void values() {
    var values = template.opsForValue();
    values.set("app:k", "v", Duration.ofSeconds(100));
    same(List.of(values.get("app:k"), values.setIfAbsent("app:k", "w"), values.getAndSet("app:k", "x")), List.of("v", false, "v"));
    same(values.increment("app:n", 41), 41L);
    same(values.increment("app:f", 1.5), 1.5);
    same(values.multiGet(List.of("app:n", "app:f")), List.of("41", "1.5"));
    same(List.of(values.append("app:k", "yz"), values.size("app:k")), List.of(3, 3L));
    same(values.setBit("app:bits", 7, true), false);
    for (int n = 0; n < 300; n++) values.set("app:scan:" + n, "v");
    try (var cursor = template.scan(ScanOptions.scanOptions().match("app:scan:*").count(50).build())) {
      same(cursor.stream().distinct().count(), 300L);
    }
    byte[] kept = template.dump("app:k");
    template.delete("app:k");
    template.restore("app:k", kept, 0, TimeUnit.SECONDS);
    same(values.get("app:k"), "xyz");
  }

  static void pipelines() {
    var replies = template.executePipelined((RedisCallback<Object>) connection -> {
      IntStream.range(0, 1000).forEach(n -> connection.stringCommands().incr("app:pipe".getBytes()));
      return null;
    });
    same(replies.get(999), 1000L);
    var done = template.execute(new SessionCallback<List<Object>>() {
      @Override
      @SuppressWarnings("unchecked")
      public <K, V> List<Object> execute(RedisOperations<K, V> operations) {
        var strings = (RedisOperations<String, String>) operations;
        strings.watch("app:a");
        strings.multi();
        strings.opsForValue().set("app:a", "1");
        strings.opsForValue().increment("app:a");
        return strings.exec();
      }
    });
    same(done, List.of(true, 2L));
  }

  static void scripts() throws Exception {
    var limit = RedisScript.of(
        "local n = redis.call('INCR', KEYS[1]) if n > tonumber(ARGV[1]) then return 0 end return 1", Long.class);
    var allowed = new AtomicInteger();
    together(20, () -> {
      allowed.addAndGet(template.execute(limit, List.of("app:limit"), "5").intValue());
      return null;
    });
    same(allowed.get(), 5);
    var counter = new RedisAtomicLong("app:counter", factory);
    together(4, () -> {
      for (int n = 0; n < 25; n++) counter.incrementAndGet();
      return null;
    });
    same(List.of(counter.get(), counter.compareAndSet(100, 7), counter.compareAndSet(100, 8)), List.of(100L, true, false));
  }

  static void listener() throws Exception {
    BlockingQueue<String> heard = new LinkedBlockingQueue<>();
    var container = new RedisMessageListenerContainer();
    container.setConnectionFactory(factory);
    container.addMessageListener((message, pattern) -> heard.add(message.toString()), new ChannelTopic("app:news"));
    container.afterPropertiesSet();
    container.start();
    for (int n = 0; n < 10; n++) same(template.convertAndSend("app:news", "" + n), 1L);
    var all = new TreeSet<String>(); // each is delivered by a thread of its own
    for (int n = 0; n < 10; n++) all.add(heard.poll(5, TimeUnit.SECONDS));
    same(all, new TreeSet<>(List.of("0", "1", "2", "3", "4", "5", "6", "7", "8", "9")));
    container.destroy();
  }

  static void lettuce() throws Exception {
    var client = (RedisClient) factory.getRequiredNativeClient();
    var uri = RedisURI.builder()
        .withHost(variable("HOST")).withPort(Integer.parseInt(variable("PORT"))).withSsl(variable("CA") != null);
    if (variable("LOGIN") != null) uri.withAuthentication(variable("LOGIN"), variable("PASSWORD"));
    else if (variable("PASSWORD") != null) uri.withPassword(variable("PASSWORD").toCharArray());
    try (var connection = client.connect(uri.build())) {
      var all = new ArrayList<RedisFuture<Long>>();
      for (int n = 0; n < 1000; n++) all.add(connection.async().incr("app:async"));
      same(LettuceFutures.awaitAll(Duration.ofSeconds(10), all.toArray(new RedisFuture[0])), true);
      same(all.get(999).get(), 1000L);
      same(connection.sync().set("app:large", "x".repeat(8 << 20)), "OK");
      same(connection.sync().get("app:large").length(), 8 << 20);
    }
  }

  public static void main(String[] arguments) throws Exception {
    try (var application = new AnnotationConfigApplicationContext(Application.class)) {
      factory = application.getBean(LettuceConnectionFactory.class);
      template = new StringRedisTemplate(factory);
      var manager = application.getBean(RedisCacheManager.class);
      var squares = application.getBean(Squares.class);
      check("annotations", () -> annotations(squares));
      check("cache", () -> cache(manager));
      check("locking", Exercise::locking);
      check("values", Exercise::values);
      check("pipelines", Exercise::pipelines);
      check("scripts", Exercise::scripts);
      check("listener", Exercise::listener);
      check("lettuce", Exercise::lettuce);
    }
  }

  static void check(String name, Check check) throws Exception {
    check.run();
    System.out.println("ok " + name);
  }
}
