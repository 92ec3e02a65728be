//! Question: what does "am I on the thread that owns this client?" cost, before and after its identity went inline?
//!
//! Method: five loops, run in turn in one handler on a real processor, order rotated every round; medians of the thread's CPU time, so
//! that other load does not enter. An empty `asm!` in each iteration makes the subject's address unknown, so that nothing of a check
//! can be hoisted out of its loop; a `black_box` there would charge each form a store.
//!
//! * *before*: what BlazingMQ had. Virtual call for the client's dispatcher, virtual call into it; dependent loads of context,
//!   processor and its thread handle; `pthread_self` and `pthread_equal` (which C inlines to `==`, so it is here).
//! * *step 1*: the check is inline, the thread id comes from a virtual accessor.
//! * *step 2*: the thread id is a plain field.
//! * *ours*: `ClientCore::in_dispatcher_thread`, against a thread-local at a constant offset.
//!
//! `--check` runs only the check of the machine code, which a normal run ends with: no call, one compare with thread-local storage.

use std::arch::asm;
use std::hint::black_box;
use std::process::{Command, ExitCode};
use std::sync::mpsc::channel;

use mqb_benches::{machine, median, thread_cpu_ns};
use mqb_dispatcher::{
    Client, ClientCore, ClientKind, Cx, Dispatcher, DispatcherConfig, Hooks, Placement,
};

const ITERATIONS: u64 = 500_000;
const ROUNDS: usize = 201;

// ---- before ----

/// A client as it was: who and where it is stood behind virtual accessors.
trait OldClient {
    fn dispatcher(&self) -> &dyn OldDispatcher;
    fn thread_id(&self) -> libc::pthread_t;
}

trait OldDispatcher {
    fn in_dispatcher_thread(&self, place: &OldPlace) -> bool;
}

/// The part of a client that was not virtual.
struct OldBase<'a> {
    virtuals: &'a dyn OldClient,
    place: OldPlace,
}

/// What the dispatcher kept in each client to find its processor again.
struct OldPlace {
    kind: usize,
    processor: usize,
}

struct Old<'a> {
    dispatcher: &'a dyn OldDispatcher,
    thread: libc::pthread_t,
}

impl OldClient for Old<'_> {
    fn dispatcher(&self) -> &dyn OldDispatcher {
        self.dispatcher
    }

    fn thread_id(&self) -> libc::pthread_t {
        self.thread
    }
}

/// Contexts by kind of client, each with its processors: three loads, each needing the one before, to a processor's handle.
struct OldContexts {
    contexts: [Box<OldContext>; 3],
}

struct OldContext {
    processors: Box<[OldProcessor]>,
}

struct OldProcessor {
    handle: libc::pthread_t,
}

impl OldDispatcher for OldContexts {
    fn in_dispatcher_thread(&self, place: &OldPlace) -> bool {
        // SAFETY: `measure` makes 3 contexts of 4 processors and a place within them. C++ checks no index either.
        let processor = unsafe {
            let context = self.contexts.get_unchecked(place.kind);
            context.processors.get_unchecked(place.processor)
        };
        // What `pthread_equal` is in C: inlined.
        processor.handle == this_thread()
    }
}

#[inline(always)]
fn this_thread() -> libc::pthread_t {
    // SAFETY: has no preconditions.
    unsafe { libc::pthread_self() }
}

// ---- the loops: true if every check said yes ----

/// The same reference, of which the compiler knows nothing any more: what is behind it must be read again. No instruction.
#[inline(always)]
fn opaque<T>(reference: &T) -> &T {
    let mut pointer = std::ptr::from_ref(reference);
    // SAFETY: no instructions; the pointer comes out as it went in, so it is still the reference it was made of.
    unsafe {
        asm!("/* {0} */", inout(reg) pointer, options(nostack, preserves_flags));
        &*pointer
    }
}

#[inline(always)]
fn repeat<T>(subject: &T, check: impl Fn(&T) -> bool) -> bool {
    let mut left = ITERATIONS;
    while check(opaque(subject)) {
        left -= 1;
        if left == 0 {
            return true;
        }
    }
    false
}

#[inline(never)]
fn empty_loop(nothing: &u64) -> bool {
    repeat(nothing, |_| true)
}

#[inline(never)]
fn before_loop(client: &OldBase) -> bool {
    repeat(client, |client| {
        client
            .virtuals
            .dispatcher()
            .in_dispatcher_thread(&client.place)
    })
}

#[inline(never)]
fn step_1_loop(client: &OldBase) -> bool {
    repeat(client, |client| {
        client.virtuals.thread_id() == this_thread()
    })
}

#[inline(never)]
fn step_2_loop(thread: &libc::pthread_t) -> bool {
    repeat(thread, |thread| *thread == this_thread())
}

/// Exported so that the check finds it by name: the timed loop itself.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn mqb_affinity_loop(core: &ClientCore) -> bool {
    repeat(core, ClientCore::in_dispatcher_thread)
}

/// Exported so that the check finds it by name: one check.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn mqb_affinity_probe(core: &ClientCore) -> bool {
    core.in_dispatcher_thread()
}

// ---- measuring ----

const FORMS: [&str; 5] = [
    "empty loop",
    "before",
    "step 1: inline call, virtual id",
    "step 2: id as a field",
    "ours",
];
const EMPTY: usize = 0;
const BEFORE: usize = 1;
const OURS: usize = 4;

/// ns per iteration, by form and round.
type Samples = [Vec<f64>; FORMS.len()];

/// Must run on the processor that owns `core`.
fn measure(core: &ClientCore) -> Samples {
    let thread = this_thread();
    let context = |_| {
        Box::new(OldContext {
            processors: (0..4).map(|_| OldProcessor { handle: thread }).collect(),
        })
    };
    let contexts = OldContexts {
        contexts: [0, 1, 2].map(context),
    };
    let old = Old {
        dispatcher: black_box(&contexts),
        thread,
    };
    let client = OldBase {
        virtuals: black_box(&old),
        place: OldPlace {
            kind: 1,
            processor: 2,
        },
    };

    let mut samples = Samples::default();
    for round in 0..=ROUNDS {
        for turn in 0..FORMS.len() {
            let form = (turn + round) % FORMS.len();
            let start = thread_cpu_ns();
            let all_yes = match form {
                EMPTY => empty_loop(&0),
                BEFORE => before_loop(&client),
                2 => step_1_loop(&client),
                3 => step_2_loop(&thread),
                _ => mqb_affinity_loop(core),
            };
            let elapsed = thread_cpu_ns() - start;
            assert!(
                all_yes,
                "{}: the check said no on the owner's thread",
                FORMS[form]
            );
            // The first round warms caches and the branch predictor.
            if round > 0 {
                samples[form].push(elapsed as f64 / ITERATIONS as f64);
            }
        }
    }
    samples
}

struct Bench(ClientCore);

impl Client<()> for Bench {
    fn core(&self) -> &ClientCore {
        &self.0
    }

    fn on_event(&mut self, _: &mut Cx<'_, ()>, (): ()) {}
}

/// Has the loops run in a handler of a client that a real dispatcher placed.
fn measure_on_a_processor() -> Samples {
    let config = DispatcherConfig {
        processors: 1,
        stuck_after: std::time::Duration::ZERO,
        ..DispatcherConfig::default()
    };
    let dispatcher = Dispatcher::start(config, Hooks::default()).expect("a processor starts");
    let (done, result) = channel();
    dispatcher.registrar().register(
        Placement::LeastLoaded(ClientKind::new(0, "bench")),
        move |core, _| {
            done.send(measure(&core)).expect("the main thread waits");
            Box::new(Bench(core))
        },
    );
    let samples = result.recv().expect("the loops end");
    dispatcher
        .stop(std::time::Duration::from_secs(5))
        .expect("nothing lingers");
    samples
}

// ---- machine code ----

/// What is wrong with the machine code, or what it is.
fn check_machine_code() -> Result<Vec<String>, String> {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        return Ok(vec!["not checked: this is not x86-64 Linux".into()]);
    }
    let own =
        std::env::current_exe().map_err(|error| format!("no path to this program: {error}"))?;
    let mut lines = Vec::new();
    for name in ["mqb_affinity_probe", "mqb_affinity_loop"] {
        let output = Command::new("objdump")
            .args([
                &format!("--disassemble={name}"),
                "--no-show-raw-insn",
                "--no-addresses",
            ])
            .arg(&own)
            .output();
        let code = match output {
            Ok(output) if output.status.success() => {
                instructions(&String::from_utf8_lossy(&output.stdout), name)
            }
            _ => return check_bytes(),
        };
        check_instructions(name, &code)?;
        lines.push(format!("{name}: {}", code.join("; ")));
    }
    Ok(lines)
}

/// The instructions of one function in objdump's output.
fn instructions(listing: &str, name: &str) -> Vec<String> {
    let body = listing
        .lines()
        .skip_while(|line| !line.contains(&format!("<{name}>:")))
        .skip(1);
    let body = body.take_while(|line| !line.trim().is_empty()).map(|line| {
        let text = line.split('#').next().unwrap_or_default();
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    });
    body.filter(|line| {
        !line.starts_with("nop") && !line.starts_with("int3") && !line.starts_with("xchg")
    })
    .collect()
}

fn check_instructions(name: &str, code: &[String]) -> Result<(), String> {
    let all = code.join("; ");
    let count = |wanted: fn(&str) -> bool| code.iter().filter(|line| wanted(line)).count();
    if code.is_empty() {
        return Err(format!("{name} was not found in the listing"));
    }
    if count(|line| line.starts_with("call")) != 0 {
        return Err(format!("{name} calls something: {all}"));
    }
    // In the loop the load may stand apart from the compare; in the probe they are one instruction.
    let is_one = match name {
        "mqb_affinity_probe" => count(|line| line.starts_with("cmp") && line.contains("%fs:")) == 1,
        _ => true,
    };
    if !is_one || count(|line| line.contains("%fs:")) != 1 {
        return Err(format!(
            "{name} does not compare with thread-local storage exactly once: {all}"
        ));
    }
    // A jump out of the function would be a call in disguise.
    if count(|line| line.starts_with('j') && line.contains('<') && !line.contains("mqb_affinity"))
        != 0
    {
        return Err(format!("{name} jumps elsewhere: {all}"));
    }
    if name == "mqb_affinity_probe" && code.len() > 6 {
        return Err(format!(
            "{name} is longer than a load, a compare and an answer: {all}"
        ));
    }
    Ok(())
}

/// Without a disassembler: the bytes of the probe up to its return.
fn check_bytes() -> Result<Vec<String>, String> {
    const LONGEST: usize = 32;
    let start = mqb_affinity_probe as *const u8;
    // SAFETY: the text segment is readable, and the function is followed by others (this one, for instance).
    let bytes = unsafe { std::slice::from_raw_parts(start, LONGEST) };
    let end = bytes
        .iter()
        .position(|&byte| byte == 0xc3)
        .ok_or("the probe does not return within 32 bytes")?;
    let code = &bytes[..end];
    let hex = || {
        code.iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<Vec<_>>()
            .join(" ")
    };
    // FS prefix, then CMP r32 with memory.
    let compares = code
        .windows(2)
        .filter(|pair| pair[0] == 0x64 && (pair[1] == 0x3b || pair[1] == 0x39))
        .count();
    if code.contains(&0xe8) || code.windows(2).any(|pair| pair == [0xff, 0x15]) {
        return Err(format!("the probe calls something: {}", hex()));
    }
    if compares != 1 {
        return Err(format!(
            "the probe does not compare with thread-local storage exactly once: {}",
            hex()
        ));
    }
    Ok(vec![format!(
        "mqb_affinity_probe: {} (bytes; there is no objdump)",
        hex()
    )])
}

// ---- report ----

fn report(mut samples: Samples) -> (bool, String) {
    let ns = samples.each_mut().map(|form| median(form));
    // Sorted by now.
    let lowest = samples.each_ref().map(|form| form[0]);
    let net = |form: usize| ns[form] - ns[EMPTY];
    println!(
        "{:<34} {:>9} {:>9} {:>9} {:>13} {:>13}",
        "form", "ns gross", "ns net", "lowest", "gross/before", "net/before"
    );
    for (form, name) in FORMS.iter().enumerate() {
        print!(
            "{name:<34} {:>9.3} {:>9.3} {:>9.3}",
            ns[form],
            net(form),
            lowest[form]
        );
        match form {
            EMPTY => println!(),
            _ => println!(
                " {:>12.2}x {:>12.2}x",
                ns[BEFORE] / ns[form],
                net(BEFORE) / net(form)
            ),
        }
    }
    let (gross, over_empty) = (ns[BEFORE] / ns[OURS], ns[OURS] / ns[EMPTY]);
    let net_ratio = net(BEFORE) / net(OURS);
    let holds = [
        ("ours at most 0.6 ns with the loop", ns[OURS] <= 0.6),
        ("ours at most 2.2 times the empty loop", over_empty <= 2.2),
        (
            "ours at least 7.5 times faster than before, gross",
            gross >= 7.5,
        ),
        (
            "ours at least 7.5 times faster than before, net",
            net_ratio >= 7.5,
        ),
    ];
    for (what, holds) in holds {
        println!("{} {what}", if holds { "holds:" } else { "FAILS:" });
    }
    if ns[EMPTY] > 0.45 {
        println!(
            "(the empty loop takes more than one cycle of 3 GHz: something else is using this core)"
        );
    }
    let json = format!(
        "\"empty_ns\":{:.3},\"before_ns\":{:.3},\"step1_ns\":{:.3},\"step2_ns\":{:.3},\"ours_ns\":{:.3},\
         \"ours_over_empty\":{over_empty:.2},\"gross_ratio\":{gross:.2},\"net_ratio\":{net_ratio:.2}",
        ns[0], ns[1], ns[2], ns[3], ns[4]
    );
    (holds.iter().all(|(_, holds)| *holds), json)
}

fn main() -> ExitCode {
    let code = check_machine_code();
    match &code {
        Ok(lines) => lines
            .iter()
            .for_each(|line| println!("machine code: {line}")),
        Err(wrong) => eprintln!("machine code: {wrong}"),
    }
    if std::env::args().any(|arg| arg == "--check") {
        return if code.is_ok() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        };
    }
    println!(
        "{}; {ITERATIONS} iterations, {ROUNDS} rounds, medians of thread CPU time",
        machine()
    );
    let (holds, json) = report(measure_on_a_processor());
    println!(
        "{{\"bench\":\"affinity\",{json},\"machine_code_ok\":{},\"holds\":{holds}}}",
        code.is_ok()
    );
    // The figures depend on what else runs here; the machine code does not.
    if code.is_ok() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
