//! Updates that depend on several keys: concurrent transfers between accounts. No other write comes between the reads and the
//! writes of an update, so the total stays the same.
//!
//! `cargo run --example update [DIRECTORY]`

use esker::{Batch, Blocking, Entry, Error, Options, WriteOptions};

const ACCOUNTS: [&str; 3] = ["account/anna", "account/ben", "account/cleo"];
const THREADS: usize = 8;
const TRANSFERS: usize = 50;

fn main() -> Result<(), Error> {
    let dir = std::env::args().nth(1).unwrap_or_else(|| {
        let dir = std::env::temp_dir().join(format!("esker-update-{}", std::process::id()));
        dir.display().to_string()
    });
    let store = Blocking::open(Options::directory(&dir))?;
    for account in ACCOUNTS {
        store.put(account, "100")?;
    }

    // Updates of the same keys wait for each other; updates of other keys run at the same time.
    let made = std::thread::scope(|scope| {
        let some = |thread: usize| transfer_some(&store, thread);
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || some(thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no thread panics")).sum::<Result<usize, _>>()
    })?;
    let refused = THREADS * TRANSFERS - made;

    let balances = store.get_many(&ACCOUNTS).into_iter().map(|value| Ok(number(value?.as_deref())));
    let balances = balances.collect::<Result<Vec<u64>, Error>>()?;
    println!("{made} transfers made, {refused} refused for lack of money; balances {balances:?}");
    assert_eq!(balances.iter().sum::<u64>(), 300);
    store.close()
}

/// Makes transfers. Returns the number of accepted ones.
fn transfer_some(store: &Blocking, thread: usize) -> Result<usize, Error> {
    let mut made = 0;
    for n in 0..TRANSFERS {
        let (from, to) = (ACCOUNTS[(thread + n) % 3], ACCOUNTS[(thread + n + 1) % 3]);
        made += usize::from(transfer(store, from, to, 30 + n as u64)?);
    }
    Ok(made)
}

/// Moves money from one account to another. Returns false if the balance is too low.
fn transfer(store: &Blocking, from: &str, to: &str, amount: u64) -> Result<bool, Error> {
    store.update(&[from, to], WriteOptions::new(), |found| {
        let balance = |entry: &Option<Entry>| number(entry.as_ref().map(|entry| &entry.value[..]));
        let mut batch = Batch::new();
        // An empty batch writes nothing.
        let Some(left) = balance(&found[0]).checked_sub(amount) else { return (batch, false) };
        batch.put(from, left.to_string()).put(to, (balance(&found[1]) + amount).to_string());
        (batch, true)
    })
}

/// Returns the stored balance, 0 for an absent account.
fn number(text: Option<&[u8]>) -> u64 {
    text.map_or(0, |text| String::from_utf8_lossy(text).parse().expect("balances are numbers"))
}
