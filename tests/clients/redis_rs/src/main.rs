//! Tests redis-rs against the server given by HOST, PORT, PROTOCOL, LOGIN, PASSWORD and CA. See run.py.

use std::time::Duration;
use std::{env, fs, io, thread};

use redis::{
    Commands, ConnectionAddr, ErrorKind, IntoConnectionInfo, ProtocolVersion, RedisResult, ServerErrorKind,
};

type Check = fn(&mut redis::Connection) -> RedisResult<()>;

fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

fn client() -> redis::Client {
    let host = variable("HOST").expect("HOST");
    let port = variable("PORT").expect("PORT").parse().expect("a port");
    let authority = variable("CA");
    let address = match authority {
        Some(_) => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
        None => ConnectionAddr::Tcp(host, port),
    };
    let protocol = if env::var("PROTOCOL").as_deref() == Ok("3") {
        ProtocolVersion::RESP3
    } else {
        ProtocolVersion::RESP2
    };
    let mut known = redis::RedisConnectionInfo::default().set_protocol(protocol);
    if let Some(login) = variable("LOGIN") {
        known = known.set_username(login);
    }
    if let Some(password) = variable("PASSWORD") {
        known = known.set_password(password);
    }
    let info = address.into_connection_info().expect("an address").set_redis_settings(known);
    match authority {
        Some(file) => {
            let root_cert = Some(fs::read(file).expect("the certificate"));
            redis::Client::build_with_tls(info, redis::TlsCertificates { client_tls: None, root_cert })
        }
        None => redis::Client::open(info),
    }
    .expect("a client")
}

fn handshake(con: &mut redis::Connection) -> RedisResult<()> {
    assert_eq!(redis::cmd("PING").query::<String>(con)?, "PONG");
    let name: String = redis::cmd("ACL").arg("WHOAMI").query(con)?;
    assert_eq!(name, variable("LOGIN").unwrap_or("default".into()));
    let info: redis::InfoDict = redis::cmd("INFO").query(con)?;
    assert!(info.get::<String>("redis_version").is_some());
    Ok(())
}

fn binary(con: &mut redis::Connection) -> RedisResult<()> {
    let value: Vec<u8> = (0..=255).chain(*b"\r\n$-1\r\n").collect();
    let () = con.set(b"app:\x00\r\n\xff", &value)?;
    assert_eq!(con.get::<_, Vec<u8>>(b"app:\x00\r\n\xff")?, value);
    assert_eq!(con.get::<_, Option<String>>("app:absent")?, None);
    let large = vec![b'x'; 8 << 20];
    let () = con.set("app:large", &large)?;
    assert!(con.get::<_, Vec<u8>>("app:large")? == large);
    Ok(())
}

fn pipeline(con: &mut redis::Connection) -> RedisResult<()> {
    let mut pipe = redis::pipe();
    for n in 0..1000 {
        pipe.set(format!("app:pipe:{n}"), n).ignore().get(format!("app:pipe:{n}"));
    }
    assert_eq!(pipe.query::<Vec<i64>>(con)?, (0..1000).collect::<Vec<_>>());
    Ok(())
}

fn transaction(_: &mut redis::Connection) -> RedisResult<()> {
    let add = || -> RedisResult<()> {
        let mut con = client().get_connection()?;
        for _ in 0..25 {
            redis::transaction(&mut con, &["app:watched"], |con, pipe| {
                let value = con.get::<_, Option<i64>>("app:watched")?.unwrap_or(0);
                pipe.set("app:watched", value + 1).query::<Option<()>>(con)
            })?;
        }
        Ok(())
    };
    let all =
        thread::scope(|scope| [(); 4].map(|()| scope.spawn(add)).map(|each| each.join().expect("no panic")));
    all.into_iter().collect::<RedisResult<()>>()?;
    assert_eq!(client().get_connection()?.get::<_, i64>("app:watched")?, 100);
    Ok(())
}

fn expiry(con: &mut redis::Connection) -> RedisResult<()> {
    let () = con.pset_ex("app:short", 1, 60)?;
    let () = con.set_ex("app:long", 1, 100)?;
    assert!((1..=100).contains(&con.ttl::<_, i64>("app:long")?));
    thread::sleep(Duration::from_millis(100));
    assert_eq!(con.get::<_, Option<i64>>("app:short")?, None);
    Ok(())
}

fn scan(con: &mut redis::Connection) -> RedisResult<()> {
    let pairs: Vec<_> = (0..500).map(|n| (format!("app:scan:{n}"), n)).collect();
    let () = con.mset(&pairs)?;
    let found =
        con.scan_match::<_, String>("app:scan:*")?.collect::<RedisResult<std::collections::HashSet<_>>>()?;
    assert_eq!(found.len(), 500);
    Ok(())
}

fn scripts(con: &mut redis::Connection) -> RedisResult<()> {
    let script = redis::Script::new("return {redis.call('INCRBY', KEYS[1], ARGV[1]), ARGV[1]}");
    let found: (i64, String) = script.key("app:script").arg(41).invoke(con)?;
    assert_eq!(found, (41, "41".into()));
    Ok(())
}

fn publish(con: &mut redis::Connection) -> RedisResult<()> {
    let mut hearing = client().get_connection()?;
    let mut listener = hearing.as_pubsub();
    listener.subscribe("app:news")?;
    for n in 0..10 {
        assert_eq!(con.publish::<_, _, i64>("app:news", n)?, 1);
    }
    for n in 0..10 {
        assert_eq!(listener.get_message()?.get_payload::<i64>()?, n);
    }
    Ok(())
}

fn errors(con: &mut redis::Connection) -> RedisResult<()> {
    let () = con.set("app:text", "x")?;
    let error = con.incr::<_, _, i64>("app:text", 1).expect_err("no number");
    assert_eq!(error.detail(), Some("value is not an integer or out of range"));
    let error = con.lpush::<_, _, i64>("app:list", "x").expect_err("no list");
    assert_eq!(error.kind(), ErrorKind::Server(ServerErrorKind::ResponseError));
    assert!(error.detail().is_some_and(|text| text.starts_with("Esker serves strings: LPUSH")));
    Ok(())
}

fn restart(con: &mut redis::Connection) -> RedisResult<()> {
    let () = con.set("app:kept", 41)?;
    println!("kill the server");
    io::stdin().read_line(&mut String::new())?;
    assert!(
        con.get::<_, i64>("app:kept")
            .is_err_and(|error| error.is_connection_dropped() || error.is_io_error())
    );
    *con = client().get_connection()?;
    assert_eq!(con.incr::<_, _, i64>("app:kept", 1)?, 42);
    Ok(())
}

fn main() -> RedisResult<()> {
    let mut con = client().get_connection()?;
    let checks: [(&str, Check); 10] = [
        ("handshake", handshake),
        ("binary", binary),
        ("pipeline", pipeline),
        ("transaction", transaction),
        ("expiry", expiry),
        ("scan", scan),
        ("scripts", scripts),
        ("publish", publish),
        ("errors", errors),
        ("restart", restart),
    ];
    for (name, check) in checks {
        check(&mut con)?;
        println!("ok {name}");
    }
    Ok(())
}
