//! The registry: which domains and queues there are, on which partition each queue lives, who is connected as whom.
//!
//! Owned by: processor 0, one per broker. Every open passes through it once, no message does. A queue's partition is
//! chosen when the queue is first opened and then is a fact of the partition's log: at the start the registry is built
//! from what the partitions recovered.

use std::sync::{Arc, Mutex, PoisonError};

use hashbrown::HashMap;
use mqb_core::SessionId;
use mqb_core::config::Config;
use mqb_core::control::Category;
use mqb_core::uri::Uri;
use mqb_dispatcher::{Client, ClientCore, Cx, Handle};

use super::settings::Domain;
use crate::event::{
    Event, OpenCall, Opened, PlacedOpen, Query, QueryAnswer, QueryRequest, Refusal, SessionUp,
};

/// Code of a refused open: more queues than the domain may have. As the reference broker numbers it.
const CODE_TOO_MANY_QUEUES: i32 = -205;

/// What the registry is told at its start.
pub struct RegistryConfig {
    /// What the operator set.
    pub config: Arc<Config>,
    /// Most queues in all domains.
    pub max_queues: usize,
}

/// A partition as the registry sees it.
pub struct PartitionEntry {
    /// Where it is.
    pub handle: Handle<Event>,
    /// URIs of the queues that it recovered.
    pub queues: Vec<String>,
}

struct DomainEntry {
    domain: Arc<Domain>,
    queues: u32,
}

struct Place {
    handle: Handle<Event>,
    queues: usize,
    /// It panicked and is gone until a restart.
    is_lost: bool,
}

struct SessionEntry {
    handle: Handle<Event>,
    identity: Option<String>,
}

/// The registry.
pub struct Registry {
    core: ClientCore,
    config: RegistryConfig,
    domains: HashMap<String, DomainEntry>,
    /// Partition by canonical URI. A queue whose creation failed stays here and is made by the next open.
    queues: HashMap<String, usize>,
    partitions: Vec<Place>,
    sessions: HashMap<SessionId, SessionEntry>,
    /// The connection of each peer that told who it is.
    identities: HashMap<String, SessionId>,
}

impl Registry {
    /// Builds the registry from what the partitions recovered. There is at least one.
    pub fn new(core: ClientCore, config: RegistryConfig, partitions: Vec<PartitionEntry>) -> Self {
        assert!(
            !partitions.is_empty(),
            "a broker has at least one partition"
        );
        let mut registry = Self {
            core,
            config,
            domains: HashMap::new(),
            queues: HashMap::new(),
            partitions: Vec::with_capacity(partitions.len()),
            sessions: HashMap::new(),
            identities: HashMap::new(),
        };
        for (index, entry) in partitions.into_iter().enumerate() {
            registry.partitions.push(Place {
                handle: entry.handle,
                queues: 0,
                is_lost: false,
            });
            for uri in entry.queues {
                registry.recovered(index, uri);
            }
        }
        registry
    }

    fn recovered(&mut self, partition: usize, uri: String) {
        let Ok(parsed) = Uri::parse(&uri) else {
            // The log checked its records; this would be a queue of another version's grammar. It stays in its log, out of reach.
            tracing::error!(event = "registry.strange_queue", uri = %uri.escape_debug(), partition);
            return;
        };
        let name = parsed.qualified_domain();
        let config = &self.config.config;
        let entry = self.domains.entry_ref(name).or_insert_with(|| {
            let domain = Arc::new(Domain::recovered(name, config));
            DomainEntry { domain, queues: 0 }
        });
        entry.queues += 1;
        self.partitions[partition].queues += 1;
        self.queues.insert(uri, partition);
    }

    fn open(&mut self, cx: &mut Cx<'_, Event>, open: OpenCall) {
        match self.place(&open) {
            Ok((domain, partition)) => {
                let place = Event::Place(Box::new(PlacedOpen { open, domain }));
                cx.post(&self.partitions[partition].handle, place);
            }
            Err(refusal) => {
                tracing::info!(
                    event = "open.refused", session = open.session.0, peer = %open.description, uri = %open.uri,
                    reason = %refusal.message
                );
                let opened = Opened {
                    call: open.call,
                    result: Err(refusal),
                };
                cx.post(&open.reply, Event::Opened(Box::new(opened)));
            }
        }
    }

    /// Finds the domain and the partition of a queue, or chooses them.
    fn place(&mut self, open: &OpenCall) -> Result<(Arc<Domain>, usize), Refusal> {
        let uri = Uri::parse(&open.uri)
            .map_err(|error| Refusal::new(Category::Refused, error.to_string()))?;
        let domain = self.domain(uri.qualified_domain())?;
        if open.app_id.is_some() {
            let text = "a queue of mode priority has no app ids";
            return Err(Refusal::new(Category::Unknown, text).with_code(-1));
        }
        if let Some(&partition) = self.queues.get(&open.uri) {
            return match self.partitions[partition].is_lost {
                true => Err(Refusal::new(
                    Category::NotReady,
                    "the queue's partition has failed",
                )),
                false => Ok((domain, partition)),
            };
        }
        self.check_room(&domain)?;
        let usable = self
            .partitions
            .iter()
            .enumerate()
            .filter(|(_, place)| !place.is_lost);
        let Some((partition, _)) = usable.min_by_key(|(_, place)| place.queues) else {
            return Err(Refusal::new(
                Category::NotReady,
                "all partitions have failed",
            ));
        };
        self.partitions[partition].queues += 1;
        if let Some(entry) = self.domains.get_mut(&domain.name) {
            entry.queues += 1;
        }
        self.queues.insert(open.uri.clone(), partition);
        Ok((domain, partition))
    }

    fn check_room(&self, domain: &Domain) -> Result<(), Refusal> {
        let queues = self
            .domains
            .get(&domain.name)
            .map_or(0, |entry| entry.queues);
        let limit = domain.config.max_queues;
        let text = if limit > 0 && queues >= limit {
            format!("domain {} has its maximum of {limit} queues", domain.name)
        } else if self.queues.len() >= self.config.max_queues {
            format!(
                "the broker has its maximum of {} queues",
                self.config.max_queues
            )
        } else {
            return Ok(());
        };
        tracing::warn!(event = "alarm", alarm = "DOMAIN_QUEUE_LIMIT_FULL", domain = %domain.name, "{text}");
        Err(Refusal::new(Category::Refused, text).with_code(CODE_TOO_MANY_QUEUES))
    }

    /// The domain of a name, made on first use if the configuration says so.
    fn domain(&mut self, name: &str) -> Result<Arc<Domain>, Refusal> {
        let config = &self.config.config;
        let Some(settings) = config.domain(name) else {
            let text = format!("domain {name} is not configured");
            return Err(Refusal::new(Category::Unknown, text).with_code(-1));
        };
        if let Some(entry) = self.domains.get(name) {
            return Ok(Arc::clone(&entry.domain));
        }
        if self.domains.len() >= config.domains_max as usize {
            let text = format!(
                "the broker has its maximum of {} domains",
                config.domains_max
            );
            tracing::warn!(event = "alarm", alarm = "DOMAIN_LIMIT_FULL", domain = %name, "{text}");
            return Err(Refusal::new(Category::Refused, text));
        }
        tracing::info!(event = "domain.created", domain = %name, durability = %settings.durability);
        let domain = Arc::new(Domain {
            name: name.into(),
            config: settings.clone(),
        });
        let entry = DomainEntry {
            domain: Arc::clone(&domain),
            queues: 0,
        };
        self.domains.insert(name.into(), entry);
        Ok(domain)
    }

    /// A connection tells who it is. An older one of the same peer is half-open at best: it is to end as lost, so that
    /// what it holds goes to the new one.
    fn session_up(&mut self, cx: &mut Cx<'_, Event>, up: SessionUp) {
        if let Some(identity) = &up.identity
            && let Some(older) = self.identities.insert(identity.clone(), up.session)
            && let Some(entry) = self.sessions.get_mut(&older)
        {
            tracing::info!(event = "session.superseded", session = older.0, by = up.session.0, peer = %up.description);
            entry.identity = None;
            cx.post(&entry.handle, Event::Superseded { by: up.session });
        }
        let entry = SessionEntry {
            handle: up.handle,
            identity: up.identity,
        };
        self.sessions.insert(up.session, entry);
    }

    fn session_down(&mut self, session: SessionId) {
        if let Some(SessionEntry {
            identity: Some(identity),
            ..
        }) = self.sessions.remove(&session)
        {
            self.identities.remove(&identity);
        }
    }

    /// A partition panicked: whoever waits for it would wait for ever.
    fn partition_lost(&mut self, cx: &mut Cx<'_, Event>, partition: &Handle<Event>) {
        let Some(place) = self
            .partitions
            .iter_mut()
            .find(|place| place.handle == *partition)
        else {
            return;
        };
        place.is_lost = true;
        tracing::error!(
            event = "alarm",
            alarm = "PARTITION_LOST",
            queues = place.queues,
            "a partition is gone until a restart"
        );
        for entry in self.sessions.values() {
            cx.post(
                &entry.handle,
                Event::PartitionLost {
                    partition: partition.clone(),
                },
            );
        }
    }

    fn query(&mut self, cx: &mut Cx<'_, Event>, query: Query) {
        match &query.request {
            QueryRequest::Domains => {
                let mut names: Vec<String> = self.domains.keys().cloned().collect();
                names.sort_unstable();
                (query.reply)(QueryAnswer::Domains(names));
            }
            QueryRequest::Queues { .. } | QueryRequest::Partitions => self.ask_all(cx, query),
            QueryRequest::Queue { uri }
            | QueryRequest::Messages { uri, .. }
            | QueryRequest::Purge { uri, .. } => match self.queues.get(uri) {
                Some(&partition) => cx.post(
                    &self.partitions[partition].handle,
                    Event::Query(Box::new(query)),
                ),
                None => (query.reply)(QueryAnswer::Refused("there is no such queue".into())),
            },
        }
    }

    /// Asks every partition and answers when the last part has come.
    fn ask_all(&self, cx: &mut Cx<'_, Event>, query: Query) {
        let empty = match query.request {
            QueryRequest::Partitions => QueryAnswer::Partitions(Vec::new()),
            _ => QueryAnswer::Queues(Vec::new()),
        };
        let gather = Gather {
            answer: empty,
            reply: Some(query.reply),
        };
        let gather = Arc::new(Mutex::new(gather));
        for place in &self.partitions {
            let part = Arc::clone(&gather);
            let reply = move |answer| lock(&part).add(answer);
            let query = Query {
                request: query.request.clone(),
                reply: Box::new(reply),
            };
            cx.post(&place.handle, Event::Query(Box::new(query)));
        }
    }
}

/// An answer being put together. It goes out when the last part is there, or can no longer come: each part's callback
/// holds a reference, and a partition that has gone drops its own uncalled.
struct Gather {
    answer: QueryAnswer,
    reply: Option<Box<dyn FnOnce(QueryAnswer) + Send>>,
}

impl Gather {
    fn add(&mut self, part: QueryAnswer) {
        match (&mut self.answer, part) {
            (QueryAnswer::Queues(all), QueryAnswer::Queues(some)) => all.extend(some),
            (QueryAnswer::Partitions(all), QueryAnswer::Partitions(some)) => all.extend(some),
            _ => {}
        }
    }
}

impl Drop for Gather {
    fn drop(&mut self) {
        let mut answer = std::mem::replace(&mut self.answer, QueryAnswer::Domains(Vec::new()));
        match &mut answer {
            QueryAnswer::Queues(queues) => queues.sort_unstable_by(|a, b| a.uri.cmp(&b.uri)),
            QueryAnswer::Partitions(partitions) => {
                partitions.sort_unstable_by_key(|report| report.partition)
            }
            _ => {}
        }
        if let Some(reply) = self.reply.take() {
            reply(answer);
        }
    }
}

fn lock(gather: &Mutex<Gather>) -> std::sync::MutexGuard<'_, Gather> {
    // A part that panicked while adding left a valid list behind.
    gather.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Client<Event> for Registry {
    fn core(&self) -> &ClientCore {
        &self.core
    }

    fn on_event(&mut self, cx: &mut Cx<'_, Event>, event: Event) {
        match event {
            Event::Open(open) => self.open(cx, *open),
            Event::SessionUp(up) => self.session_up(cx, *up),
            Event::SessionDown { session } => self.session_down(session),
            Event::PartitionLost { partition } => self.partition_lost(cx, &partition),
            Event::Query(query) => self.query(cx, *query),
            _ => tracing::error!(
                event = "registry.strange_event",
                "an event that is not for the registry"
            ),
        }
    }
}
