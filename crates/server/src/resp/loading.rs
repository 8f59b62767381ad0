//! Serves clients while the store is being opened: as in Redis, every command on keys is answered `-LOADING`.
//! Commands by which a client introduces itself are served: HELLO, AUTH, SELECT, CLIENT; and INFO reports that the
//! server is loading. Clients that give up after an error to HELLO therefore wait.
//!
//! Only this introduction is kept, so a client holds little memory however much it sends. Once the store is open, the
//! connection continues with its unparsed input and its unsent answers.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use super::commands::admit;
use super::connection::{Dialogue, Peer};
use super::session::Session;
use super::verb::{Opening, Run};
use super::wire::commands::{Command, Commands};
use super::wire::frame::Unparsed;
use super::wire::reply::Replies;
use crate::Limits;
use crate::base::shutdown::Stop;

const LOADING: &str = "LOADING Esker is loading the dataset in memory";

/// Bytes of the input buffer for one read, and of unsent answers that may accumulate.
const READ_BYTES: usize = 4 << 10;

/// Bytes of a command that are parsed; the rest of a longer command is skipped.
const COMMAND_BYTES_MAX: usize = 8 << 10;

/// Time that a client which is being disconnected has to read the last answers.
const LINGER: Duration = Duration::from_secs(2);

/// Answers one client. Returns its dialogue once the store is open, or `None` if the client left before.
pub(crate) async fn serve_loading<S>(
    stream: &mut S,
    peer: Peer,
    opening: Opening<'_>,
    mut stop: Stop,
) -> io::Result<Option<Dialogue>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let small = |limits: &Limits| Limits {
        command_bytes_max: limits.command_bytes_max.min(COMMAND_BYTES_MAX),
        bulk_bytes_max: limits.bulk_bytes_max.min(READ_BYTES),
        inline_bytes_max: limits.inline_bytes_max.min(READ_BYTES),
        ..limits.clone()
    };
    let [stranger, known] = [small(&opening.limits.before_login()), small(opening.limits)];
    let mut dialogue = Dialogue::new(peer, &stranger);
    let mut commands = Commands::default();
    while !dialogue.session.leaving {
        let Dialogue { session, parser, input, replies } = &mut dialogue;
        let limits = if session.user.is_none() { &stranger } else { &known };
        parser.set_limits(limits);
        commands.clear();
        let (consumed, parsed) = parser.parse(input, &mut commands, 1);
        let data = input.split_to(consumed).freeze();
        if !commands.is_empty() {
            answer(commands.get(0, &data), session, &opening, replies).await;
        }
        let waits = consumed == 0 && parsed.is_ok();
        match parsed {
            Ok(()) => {}
            Err(_) if session.leaving => {}
            Err(Unparsed::TooLong(_)) => replies.error(LOADING),
            Err(Unparsed::Broken(why)) => {
                replies.error(&why);
                session.leaving = true;
            }
        }
        if session.leaving {
            break;
        }
        let silence = if input.is_empty() { limits.idle_wait } else { limits.command_wait };
        let exchange = async {
            if waits || replies.unsent_bytes() > READ_BYTES {
                within(limits.reply_wait, send(stream, replies)).await?;
            }
            if !waits {
                return Ok(true);
            }
            input.reserve(READ_BYTES);
            within(silence, stream.read_buf(input)).await.map(|bytes| bytes > 0)
        };
        let goes_on = tokio::select! {
            biased;
            () = stop.announced() => return Ok(Some(dialogue)),
            goes_on = exchange => goes_on?,
        };
        if !goes_on {
            return Ok(None);
        }
    }
    within(Some(LINGER), take_leave(stream, &mut dialogue.replies)).await?;
    Ok(None)
}

/// Runs an exchange with a client, which fails if it takes longer than `wait`.
async fn within<T>(wait: Option<Duration>, exchange: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    match wait {
        Some(wait) => timeout(wait, exchange).await?,
        None => exchange.await,
    }
}

async fn answer(command: Command<'_>, session: &mut Session, opening: &Opening<'_>, replies: &mut Replies) {
    let verb = match admit::admit(command, session, None) {
        Ok(verb) => verb,
        Err(refused) => return replies.error(&refused.text),
    };
    match (verb.while_opening, verb.run) {
        (Some(answer), _) => answer(command, session, opening, replies),
        (None, Run::Session(answer)) => answer(command, session, replies),
        (None, Run::LogIn(log_in)) => {
            let wait = opening.limits.login_wait;
            if let Err(refusal) = log_in(command, session, opening.users, wait, replies).await {
                replies.error(refusal.text());
            }
        }
        _ => replies.error(LOADING),
    }
}

async fn send<S: AsyncWrite + Unpin>(stream: &mut S, replies: &mut Replies) -> io::Result<()> {
    while replies.unsent_bytes() > 0 {
        let sent = stream.write(&replies.unsent::<1>().0[0]).await?;
        if sent == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        replies.mark_sent(sent);
    }
    stream.flush().await
}

/// Sends the remaining answers, shuts down the sending side, and reads the rest of the client's input: closing a socket
/// with unread bytes would discard the answers.
async fn take_leave<S>(stream: &mut S, replies: &mut Replies) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    send(stream, replies).await?;
    stream.shutdown().await?;
    let mut unread = [0; 512];
    while stream.read(&mut unread).await? > 0 {}
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Users;
    use crate::base::address::Address;
    use crate::base::config::{Access, Password};

    /// Returns the answers to a client that sends `bytes` in pieces of `piece` bytes.
    async fn told(bytes: &[u8], piece: usize, access: &Access) -> String {
        let (mut client, mut server) = tokio::io::duplex(64 << 10);
        let (_stopper, stop) = crate::base::shutdown::Stopper::new();
        let users = Users::open(access, crate::resp::command_table(), 1 << 20).unwrap();
        let address = Address::Network("127.0.0.1:1".parse().unwrap());
        let (local, user) = (address.clone(), users.unnamed());
        let peer = Peer { id: 7, address, local, user, reads_replica: false };
        let serving = tokio::spawn(async move {
            let limits = Limits::default();
            let opening =
                Opening { limits: &limits, users: &users, databases: 16, progress: &|| "half".to_owned() };
            serve_loading(&mut server, peer, opening, stop).await
        });
        for piece in bytes.chunks(piece) {
            // The server may have closed the connection before the last piece.
            let _ = client.write_all(piece).await;
        }
        client.shutdown().await.unwrap();
        let mut heard = String::new();
        client.read_to_string(&mut heard).await.unwrap();
        serving.await.unwrap().unwrap();
        heard
    }

    fn loading() -> String {
        format!("-{LOADING}\r\n")
    }

    #[tokio::test]
    async fn every_command_on_keys_is_told_so_however_it_is_cut() {
        let free = Access::default();
        for piece in [1, 3, 4096] {
            let heard =
                told(b"PING\r\n*2\r\n$3\r\nGET\r\n$1\r\na\r\n\r\nMULTI\r\nCONFIG GET x\r\n", piece, &free);
            assert_eq!(heard.await, loading().repeat(4), "{piece}");
            assert_eq!(
                told(b"GET a\r\nquit\r\nPING\r\n", piece, &free).await,
                format!("{}+OK\r\n", loading()),
                "{piece}"
            );
        }
        let many = told(&b"GET a\r\n".repeat(5000), 4096, &free).await;
        assert_eq!(many, loading().repeat(5000));
    }

    #[tokio::test]
    async fn a_client_introduces_itself() {
        let free = Access::default();
        let heard = told(
            b"HELLO 3 SETNAME me\r\nCLIENT GETNAME\r\nCLIENT SETINFO LIB-NAME it\r\nCLIENT INFO\r\nSELECT 15\r\nSELECT 16\r\n\
              ECHO hi\r\nCLIENT LIST\r\nCLIENT FOO\r\nHELLO 4\r\nFOO\r\nGET\r\nRESET\r\nCLIENT GETNAME\r\nINFO persistence\r\n\
              INFO\r\nPOST x\r\nPING\r\n",
            4096,
            &free,
        )
        .await;
        let (hello, heard) = heard.split_once("$7\r\nmodules\r\n*0\r\n").expect(&heard);
        assert!(
            hello.starts_with("%7\r\n") && hello.contains("$5\r\nproto\r\n:3\r\n$2\r\nid\r\n:7\r\n"),
            "{hello}"
        );
        let heard = heard.strip_prefix("$2\r\nme\r\n+OK\r\n").expect(heard);
        let (info, heard) = heard.split_once("lib-name=it lib-ver=\n\r\n").expect(heard);
        assert!(info.contains("id=7 addr=127.0.0.1:1 ") && info.contains(" name=me "), "{info}");
        let expected = "+OK\r\n-ERR DB index is out of range\r\n$2\r\nhi\r\n".to_owned()
            + &loading()
            + "-ERR unknown subcommand 'FOO'. Try CLIENT HELP.\r\n-NOPROTO unsupported protocol version\r\n\
               -ERR unknown command 'FOO', with args beginning with: \r\n\
               -ERR wrong number of arguments for 'get' command\r\n+RESET\r\n$-1\r\n\
               $43\r\n# Persistence\r\nloading:1\r\nasync_loading:0\r\n\r\n";
        let heard = heard.strip_prefix(&expected).unwrap_or_else(|| panic!("{heard}\n{expected}"));
        assert!(heard.contains("\r\nredis_version:") && heard.ends_with("opening:half\r\n\r\n"), "{heard}");
    }

    #[tokio::test]
    async fn login_is_required_while_store_is_loading() {
        let closed = Access { password: Some(Password::new("right")), ..Access::default() };
        let none = "-NOAUTH Authentication required.\r\n";
        let heard = told(b"PING\r\nINFO\r\nCLIENT ID\r\nSELECT 0\r\nQUIT\r\n", 4096, &closed).await;
        assert_eq!(heard, none.repeat(4) + "+OK\r\n");
        let wrong = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
        let heard = told(
            b"AUTH wrong\r\nHELLO 3 AUTH default wrong\r\nGET a\r\nHELLO\r\nAUTH right\r\nPING\r\nRESET\r\nPING\r\n\
              AUTH default right\r\nGET a\r\n",
            4096,
            &closed,
        )
        .await;
        let unnamed = "-NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol \
                       version at the same time\r\n";
        let loading = loading();
        assert_eq!(
            heard,
            format!("{wrong}{wrong}{none}{unnamed}+OK\r\n{loading}+RESET\r\n{none}+OK\r\n{loading}")
        );
    }

    #[tokio::test]
    async fn a_long_command_is_told_so_too_and_passed_by() {
        let (free, loading) = (Access::default(), loading());
        let long =
            format!("PING\r\n*3\r\n$3\r\nSET\r\n$1\r\na\r\n$100000\r\n{}\r\nPING\r\n", "x".repeat(100_000));
        let many = format!("*5001\r\n$4\r\nMGET\r\n{}PING\r\n", "$1\r\nk\r\n".repeat(5000));
        for piece in [1000, 4096] {
            assert_eq!(told(long.as_bytes(), piece, &free).await, loading.repeat(3), "{piece}");
            assert_eq!(told(many.as_bytes(), piece, &free).await, loading.repeat(2), "{piece}");
        }
    }

    #[tokio::test]
    async fn protocol_error_while_loading_closes_connection() {
        let free = Access::default();
        let broken = "-ERR Protocol error: ";
        assert_eq!(told(&[b'x'; 100_000], 4096, &free).await, format!("{broken}too big inline request\r\n"));
        assert_eq!(told(b"*1\r\n!", 4096, &free).await, format!("{broken}expected '$', got '!'\r\n"));
        // Before the login, smaller limits hold.
        let closed = Access { password: Some(Password::new("right")), ..Access::default() };
        let long = b"*2\r\n$4\r\nAUTH\r\n$5000\r\n";
        assert_eq!(told(long, 4096, &closed).await, format!("{broken}invalid bulk length\r\n"));
    }
}
