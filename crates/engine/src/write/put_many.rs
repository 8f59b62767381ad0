//! Many unrelated puts in one call.
//!
//! A server gets them in pipelines. They share one acquisition of the lane's lock instead of one each, and are waited for
//! together.

use bytes::Bytes;
use esker_log::Kind;
use esker_seeded_bugs::{Bug, planted};

use crate::base::completion::Waiter;
use crate::base::durability::Durability;
use crate::base::error::{Error, Result};
use crate::write::Writer;
use crate::write::lane::Append;
use crate::write::options::{Condition, WriteOptions};
use crate::write::prepared::Prepared;
use crate::write::reserve::Reservation;

/// Key, value, and expiry in milliseconds since the Unix epoch.
type Put = (Bytes, Bytes, Option<u64>);

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
        let (results, prepared) = (Vec::with_capacity(puts.len()), Vec::with_capacity(puts.len()));
        let mut row = Row { results, waiting: Vec::new(), prepared };
        let durability = self.durability(&options);
        for (key, value, expires_at_ms) in puts {
            let put = self.prepare_one(database, (key, value, expires_at_ms), &durability).await;
            match put.map(|put| Prepared { origin: options.origin, ..put }) {
                Ok(put) if self.lane_for_large(&put).is_none() => row.prepared.push(put),
                Ok(put) => {
                    // Not before the preceding puts are visible, which may have the same key.
                    self.append_row(&mut row, &durability).await;
                    self.wait_for_row(&mut row).await;
                    let result = match &durability {
                        Ok(durability) => self.put_prepared(put, *durability, Condition::Always).await,
                        Err(error) => Err(error.clone()),
                    };
                    row.results.push(result);
                }
                Err(error) => {
                    self.append_row(&mut row, &durability).await;
                    row.results.push(Err(error));
                }
            }
        }
        self.append_row(&mut row, &durability).await;
        self.wait_for_row(&mut row).await;
        row.results
    }

    async fn prepare_one(
        &self,
        database: u8,
        (key, value, expires_at_ms): Put,
        durability: &Result<Durability>,
    ) -> Result<Prepared> {
        durability.as_ref().map_err(Error::clone)?;
        let put = self.prepare(Kind::Put, Some(database), key, value, expires_at_ms)?;
        self.space.health.check_writable()?;
        self.find_room_for(&put).await?;
        Ok(put)
    }

    /// Appends the prepared puts.
    async fn append_row(&self, row: &mut Row, durability: &Result<Durability>) {
        let Ok(durability) = *durability else { return };
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
