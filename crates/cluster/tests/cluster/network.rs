//! A simulated network between nodes: it loses, delays and repeats requests, and checks hellos as the wire does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use esker_cluster::node::OTHER_CLUSTER;
use esker_cluster::peers::{NodeIdentity, PeerHandler, PeerRecord, PeerRequest, PeerResponse, Peers};
use esker_cluster::sightings::{Sighting, Sightings};
use esker_device::Runtime;
use esker_simulated::SimRuntime;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;

/// Time after which a request that was lost fails.
const GIVEN_UP: Duration = Duration::from_millis(500);
/// Time since the last answer after which a node is unreachable.
const SILENCE_MAX: Duration = Duration::from_secs(2);

/// The state of a running machine that the network keeps.
#[derive(Default)]
struct Port {
    identity: Option<NodeIdentity>,
    handler: Option<Weak<dyn PeerHandler>>,
    nodes: BTreeMap<u64, PeerRecord>,
    /// Its sightings of other nodes.
    sightings: Sightings,
    /// Time of the last answer of each address.
    answered: BTreeMap<String, Duration>,
}

/// The network.
pub(crate) struct Network {
    world: SimRuntime,
    /// By address.
    ports: Mutex<BTreeMap<String, Arc<Mutex<Port>>>>,
    /// Ways on which nothing passes, from one address to another.
    cuts: Mutex<BTreeSet<(String, String)>>,
    /// One of this many messages is lost, and as many are repeated; none if it is 0.
    loses_one_in: Mutex<u64>,
    /// Refusals of hellos.
    refusals: Mutex<Vec<String>>,
    /// Called with the address of a node that is about to say who it is.
    on_identity: Mutex<Option<OnIdentity>>,
}

type OnIdentity = Box<dyn FnMut(&str, NodeIdentity) + Send>;

/// Returns the address of a machine.
pub(crate) fn address(machine: u64) -> String {
    format!("m{machine}:7000")
}

impl Network {
    pub(crate) fn new(world: &SimRuntime) -> Arc<Network> {
        Arc::new(Network {
            world: world.clone(),
            ports: Mutex::default(),
            cuts: Mutex::default(),
            loses_one_in: Mutex::new(0),
            refusals: Mutex::default(),
            on_identity: Mutex::default(),
        })
    }

    /// Connects a machine that starts.
    pub(crate) fn connect(self: &Arc<Network>, machine: u64) -> Arc<Way> {
        let (port, address) = (Arc::new(Mutex::new(Port::default())), address(machine));
        self.ports.lock().insert(address.clone(), port.clone());
        Arc::new(Way { net: self.clone(), address, port })
    }

    /// Disconnects a machine that lost its power.
    pub(crate) fn disconnect(&self, machine: u64) {
        self.ports.lock().remove(&address(machine));
    }

    /// Lets nothing pass from one machine to another.
    pub(crate) fn cut(&self, from: u64, to: u64) {
        self.cuts.lock().insert((address(from), address(to)));
    }

    /// Ends all cuts.
    pub(crate) fn mend(&self) {
        self.cuts.lock().clear();
    }

    /// Loses and repeats one of this many messages.
    pub(crate) fn lose_one_in(&self, messages: u64) {
        *self.loses_one_in.lock() = messages;
    }

    /// Calls a function whenever a node is about to say who it is.
    pub(crate) fn on_identity(&self, call: impl FnMut(&str, NodeIdentity) + Send + 'static) {
        *self.on_identity.lock() = Some(Box::new(call));
    }

    /// Returns the refusals of hellos so far.
    pub(crate) fn refusals(&self) -> Vec<String> {
        self.refusals.lock().clone()
    }

    fn is_unlucky(&self) -> bool {
        let one_in = *self.loses_one_in.lock();
        one_in > 0 && self.world.random().is_multiple_of(one_in)
    }

    /// Takes the time of one way. Returns false if the message is lost.
    async fn passes(&self, from: &str, to: &str) -> bool {
        self.world.sleep(Duration::from_micros(50 + self.world.random() % 450)).await;
        !self.is_unlucky() && !self.cuts.lock().contains(&(from.to_owned(), to.to_owned()))
    }

    /// Checks the identity in a hello, as the receiver does. Returns the number of the node if it is a member.
    fn check_hello(&self, from: &str, said: NodeIdentity, port: &mut Port) -> Result<Option<u64>, String> {
        let me = port.identity.ok_or("the node has no identity yet")?;
        if said.cluster == 0 {
            return Ok(None);
        }
        if me.cluster != said.cluster {
            return Err(format!("the node {OTHER_CLUSTER} {:x}", me.cluster));
        }
        let Some(record) = port.nodes.get(&said.node) else {
            return Err(format!("node {:x} is no member", said.node));
        };
        if record.store != said.store || record.peers != from {
            return Err(format!("node {:x} is known with another store or address", said.node));
        }
        if let Err(why) = port.sightings.check(&said) {
            port.sightings.note_refused(&said);
            return Err(format!("node {:x} {why}", said.node));
        }
        Ok(Some(said.node))
    }

    /// Checks the identity that the other side sends, as the side that connects does.
    fn check_welcome(&self, mine: &Mutex<Port>, said: Option<NodeIdentity>) -> Result<(), String> {
        let mut mine = mine.lock();
        let Some(said) = said.filter(|said| mine.nodes.contains_key(&said.node)) else { return Ok(()) };
        if let Err(why) = mine.sightings.check(&said) {
            mine.sightings.note_refused(&said);
            let why = format!("node {:x} {why}", said.node);
            self.refusals.lock().push(why.clone());
            return Err(why);
        }
        mine.sightings.note_start(&said);
        Ok(())
    }

    async fn carry(
        self: Arc<Network>,
        from: (String, Arc<Mutex<Port>>),
        to: String,
        expected: Option<u64>,
        request: PeerRequest,
    ) -> Result<PeerResponse, String> {
        let (from, mine) = from;
        if !self.passes(&from, &to).await {
            self.world.sleep(GIVEN_UP).await;
            return Err("the request was lost".into());
        }
        let port = self.ports.lock().get(&to).cloned().ok_or("the node is down")?;
        let said = mine.lock().identity.ok_or("the sender has no identity")?;
        let named = port.lock().identity;
        if let Err(why) = self.check_welcome(&mine, named) {
            // The next attempt to connect comes after a pause.
            self.world.sleep(GIVEN_UP).await;
            return Err(why);
        }
        let (sender, handler) = {
            let mut port = port.lock();
            if let Some(number) = expected
                && port.identity.is_none_or(|identity| identity.node != number)
            {
                return Err(format!("the node at {to} is not node {number:x}"));
            }
            let checked = self.check_hello(&from, said, &mut port);
            let sender = checked.inspect_err(|why| self.refusals.lock().push(why.clone()))?;
            if let Some(sender) = sender {
                debug_assert_eq!(sender, said.node);
                port.sightings.note_start(&said);
            }
            (sender, port.handler.as_ref().and_then(Weak::upgrade).ok_or("the node does not serve yet")?)
        };
        if self.is_unlucky() {
            let repeated = handler.handle(sender, request.clone());
            self.world.spawn("repeated request", Box::pin(async move { drop(repeated.await) }));
        }
        let handled = handler.handle(sender, request);
        drop(handler);
        let answer = handled.await;
        let is_up = self.ports.lock().get(&to).is_some_and(|now| Arc::ptr_eq(now, &port));
        if !is_up || !self.passes(&to, &from).await {
            self.world.sleep(GIVEN_UP).await;
            return Err("the answer was lost".into());
        }
        let (identity, position) = {
            let port = port.lock();
            let handler = port.handler.as_ref().and_then(Weak::upgrade);
            (port.identity, handler.map_or(0, |handler| handler.position()))
        };
        let mut mine = mine.lock();
        identity.into_iter().for_each(|identity| mine.sightings.note_position(identity.node, position));
        mine.answered.insert(to, self.world.now());
        Ok(answer)
    }
}

/// The way of one machine into the network, until its power is cut.
pub(crate) struct Way {
    net: Arc<Network>,
    address: String,
    port: Arc<Mutex<Port>>,
}

impl Way {
    /// Hands requests to a node.
    pub(crate) fn serve(&self, handler: &Arc<impl PeerHandler>) {
        let handler: Arc<dyn PeerHandler> = handler.clone();
        self.port.lock().handler = Some(Arc::downgrade(&handler));
    }
}

impl Peers for Way {
    fn call(&self, node: u64, request: PeerRequest) -> BoxFuture<'static, Result<PeerResponse, String>> {
        let to = self.port.lock().nodes.get(&node).map(|record| record.peers.clone());
        let (net, from) = (self.net.clone(), (self.address.clone(), self.port.clone()));
        Box::pin(async move {
            let to = to.ok_or_else(|| format!("node {node:x} is not known"))?;
            net.carry(from, to, Some(node), request).await
        })
    }

    fn ask(&self, address: &str, request: PeerRequest) -> BoxFuture<'static, Result<PeerResponse, String>> {
        let from = (self.address.clone(), self.port.clone());
        Box::pin(self.net.clone().carry(from, address.to_owned(), None, request))
    }

    fn set_nodes(&self, nodes: Vec<PeerRecord>) {
        self.port.lock().nodes = nodes.into_iter().map(|record| (record.node, record)).collect();
    }

    fn set_identity(&self, identity: NodeIdentity) {
        if let Some(call) = &mut *self.net.on_identity.lock() {
            call(&self.address, identity);
        }
        self.port.lock().identity = Some(identity);
    }

    fn remember(&self, seen: &[Sighting]) {
        self.port.lock().sightings.remember(seen);
    }

    fn sightings(&self) -> Vec<Sighting> {
        self.port.lock().sightings.all()
    }

    /// A node answers pings if it runs and nothing is cut. Otherwise it counts as reachable for some time.
    fn is_reachable(&self, node: u64) -> bool {
        let Some(record) = self.port.lock().nodes.get(&node).cloned() else { return false };
        let mut cuts = self
            .net
            .cuts
            .lock()
            .iter()
            .map(|(from, to)| [from.clone(), to.clone()])
            .collect::<Vec<_>>()
            .into_iter();
        let is_cut = cuts.any(|cut| cut.contains(&record.peers) && cut.contains(&self.address));
        let port = self.net.ports.lock().get(&record.peers).cloned();
        let (mut runs, mut is_another) = (false, false);
        if let Some(port) = port {
            let port = port.lock();
            let is_it = port.identity.map(|identity| identity.node == node);
            (runs, is_another) = (port.handler.is_some() && is_it == Some(true), is_it == Some(false));
        }
        if is_another {
            return false;
        }
        if runs && !is_cut {
            return true;
        }
        let answered = self.port.lock().answered.get(&record.peers).copied();
        answered.is_some_and(|at| self.net.world.now() < at + SILENCE_MAX)
    }
}
