//! Many unrelated puts in one call.
//!
//! A server gets them in pipelines. They share one acquisition of the lane's lock instead of one each, and are waited for
//! together.

use esker_seeded_bugs::{Bug, planted};

use crate::base::completion::Waiter;
use crate::base::durability::Durability;
use crate::base::error::Result;
use crate::write::Writer;
use crate::write::lane::Append;
use crate::write::options::{Condition, WriteOptions};
use crate::write::prepared::Prepared;
use crate::write::put::Put;
use crate::write::reserve::Reservation;

/// Puts in progress.
struct Row {
    results: Vec<Result<u64>>,
    /// Positions in `results` of puts that are acknowledged when the completion event opens.
    waiting: Vec<(usize, Waiter)>,
    /// Puts ready to be appended, the first of which belongs at the end of `results`.
    prepared: Vec<Prepared>,
}

impl Writer {
    /// See [`Store::put_many`](crate::Store::put_many).
    pub(crate) async fn put_many(
        &self,
        database: u8,
        puts: Vec<Put>,
        options: WriteOptions,
    ) -> Vec<Result<u64>> {
        let durability = match self.durability(&options) {
            Ok(durability) => durability,
            Err(error) => return vec![Err(error); puts.len()],
        };
        if let Some(replicator) = self.catalog.replicator() {
            return Box::pin(self.propose_many(replicator, database, puts, options.origin)).await;
        }
        let (results, prepared) = (Vec::with_capacity(puts.len()), Vec::with_capacity(puts.len()));
        let mut row = Row { results, waiting: Vec::new(), prepared };
        for put in puts {
            match self.admit(database, put, options.origin).await {
                Ok(put) if self.lane_for_large(&put).is_none() => row.prepared.push(put),
                Ok(put) => {
                    // Not before the preceding puts are visible, which may have the same key. They may have taken the room
                    // too, so the put is admitted again.
                    self.append_row(&mut row, durability).await;
                    self.wait_for_row(&mut row).await;
                    row.results.push(self.put_prepared(put, durability, Condition::Always).await);
                }
                Err(error) => {
                    self.append_row(&mut row, durability).await;
                    row.results.push(Err(error));
                }
            }
        }
        self.append_row(&mut row, durability).await;
        self.wait_for_row(&mut row).await;
        row.results
    }

    /// Prepares a put, and waits until it may be appended.
    pub(super) async fn admit(&self, database: u8, put: Put, origin: u64) -> Result<Prepared> {
        let put = self.prepare_put(database, put, origin)?;
        self.await_admission(&put).await?;
        Ok(put)
    }

    /// Appends the prepared puts.
    async fn append_row(&self, row: &mut Row, durability: Durability) {
        if row.prepared.is_empty() {
            return;
        }
        let bytes = row.prepared.iter().map(|put| put.padded_bytes(self.lane.shape)).sum();
        self.admission.wait(&self.space, &self.catalog.index, row.prepared.len(), bytes).await;
        if row.prepared.len() > 1 {
            self.catalog.touch_displaced(row.prepared.iter().map(|put| put.hash));
        }
        let mut next = 0;
        let mut turn = None;
        let mut answers = Vec::with_capacity(row.prepared.len());
        while next < row.prepared.len() {
            let appended = match &mut turn {
                // Alone, because the turn is granted to this put.
                Some(_) => {
                    let put = std::slice::from_ref(&row.prepared[next]);
                    let appended = self.lane.append(put, durability, &mut turn);
                    appended.map(|answer| answers.push(answer))
                }
                None => self.lane.append_each(&row.prepared[next..], durability, &mut answers),
            };
            let mut held_up = None;
            for answer in answers.drain(..) {
                match answer {
                    Append::Done(sequence) => row.results.push(Ok(sequence)),
                    Append::Wait(sequence, completion) => {
                        row.waiting.push((row.results.len(), completion));
                        row.results.push(Ok(sequence));
                    }
                    blocked @ (Append::Blocked(_) | Append::Reserved) => {
                        held_up = Some(blocked);
                        continue;
                    }
                }
                row.prepared[next].count(&self.space.counters);
                next += 1;
            }
            turn = None;
            let refused = match (appended, held_up) {
                (Err(error), _) => Err(error),
                (Ok(()), None) => Ok(()),
                (Ok(()), Some(why)) => {
                    let since = self.space.runtime.now();
                    let waited = self.wait_until_it_goes_on(why, &mut row.prepared[next]).await;
                    self.space.counters.count_stall(self.space.runtime.now() - since);
                    waited.map(|granted| turn = granted)
                }
            };
            if let Err(error) = refused {
                row.results.extend(row.prepared.drain(next..).map(|_| Err(error.clone())));
            }
        }
        row.prepared.clear();
    }

    /// Waits for room, or for the turn of a put, which is returned.
    async fn wait_until_it_goes_on(
        &self,
        held_up: Append,
        put: &mut Prepared,
    ) -> Result<Option<Reservation>> {
        match held_up {
            Append::Blocked(completion) => completion.wait().await.map(|()| None),
            Append::Reserved => self.turn(std::slice::from_mut(put)).await.map(Some),
            Append::Done(_) | Append::Wait(..) => Ok(None),
        }
    }

    async fn wait_for_row(&self, row: &mut Row) {
        let mut last: Option<(Waiter, Result<()>)> = None;
        for (place, completion) in row.waiting.drain(..) {
            // Most of them wait for the same frame.
            let opened = match &last {
                Some((known, opened)) if known.is_at(&completion) || planted(Bug::RowAnsweredByFirst) => {
                    opened.clone()
                }
                _ => completion.wait().await,
            };
            if let Err(error) = &opened {
                row.results[place] = Err(error.clone());
            }
            last = Some((completion, opened));
        }
    }
}
