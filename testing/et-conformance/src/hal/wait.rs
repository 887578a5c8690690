//! `Mailbox`: notifications.

use std::time::{Duration, Instant};

use et_hal::{Hal, Mailbox, Ticket, Wake};

use super::{Ready, SQ0, echo, ping, receive, receive_echo, send};
use crate::check::{check, check_eq};
use crate::{Failure, Rig};

crate::case::group! { Hal, "hal::wait":
    a_notification_before_the_wait_is_not_lost,
    a_wait_for_nothing_ends_by_its_timeout,
    a_wait_without_time_does_not_wait,
    wake_ends_the_waits_of_all_threads,
    an_answer_ends_a_wait_that_has_begun,
    a_waiter_sees_every_answer,
}

/// A wait that only a notification can end before the case counts as hanging.
const ENDLESS: Duration = Duration::from_secs(7 * 24 * 3600);

/// A ticket after which nothing has happened for a while.
fn quiet<M: Mailbox>(mailbox: &M, time: Duration, patience: Duration) -> Result<Ticket, Failure> {
    let started = Instant::now();
    loop {
        let ticket = mailbox.ticket();
        let wake = mailbox.wait(ticket, time)?;
        let took = started.elapsed();
        match wake {
            Wake::TimedOut if took < patience => return Ok(ticket),
            // A backend without interrupts ends long waits although it has heard nothing.
            Wake::Notified if took < patience && mailbox.ticket() == ticket => return Ok(ticket),
            Wake::Notified if took < patience => {}
            _ => {
                return Err(Failure::new(format!(
                    "waits of {time:?} on an idle device took {took:?}"
                )));
            }
        }
    }
}

fn a_notification_before_the_wait_is_not_lost<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let ready = Ready::open(rig)?;
    let mailbox = ready.mailbox()?;
    for tag in 0..u16::try_from(rig.times(100, 10))? {
        let before = mailbox.ticket();
        ping(&mailbox, tag, ready.patience)?;
        check_eq!(mailbox.wait(before, ENDLESS)?, Wake::Notified, "a wait for the past");
    }
    Ok(())
}

fn a_wait_for_nothing_ends_by_its_timeout<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let ready = Ready::open(rig)?;
    let mailbox = ready.mailbox()?;
    let time = rig.short(Duration::from_millis(5));
    let ticket = quiet(&mailbox, time, ready.patience)?;
    // An idle device may still send a notification that says nothing; then the next one counts.
    let mut outcome = Wake::Notified;
    for _ in 0..20 {
        let started = Instant::now();
        outcome = mailbox.wait(ticket, time)?;
        let took = started.elapsed();
        check!(took < ready.patience, "a wait of {time:?} took {took:?}");
        if outcome == Wake::TimedOut {
            check!(took >= time, "a wait of {time:?} timed out after {took:?}");
            break;
        }
    }
    check_eq!(outcome, Wake::TimedOut, "a wait for nothing");
    Ok(())
}

fn a_wait_without_time_does_not_wait<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let ready = Ready::open(rig)?;
    let mailbox = ready.mailbox()?;
    let ticket = quiet(&mailbox, rig.short(Duration::from_millis(5)), ready.patience)?;
    check_eq!(mailbox.wait(ticket, Duration::ZERO)?, Wake::TimedOut, "a look without time");
    mailbox.wake();
    check_eq!(mailbox.wait(ticket, Duration::ZERO)?, Wake::Notified, "a look after a wake");
    Ok(())
}

fn wake_ends_the_waits_of_all_threads<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let ready = Ready::open(rig)?;
    let mailbox = ready.mailbox()?;
    for _ in 0..rig.times(50, 5) {
        let ticket = mailbox.ticket();
        std::thread::scope(|scope| {
            let waiters: Vec<_> =
                (0..3).map(|_| scope.spawn(|| mailbox.wait(ticket, ENDLESS))).collect();
            std::thread::yield_now();
            mailbox.wake();
            for waiter in waiters {
                let wake = waiter.join().map_err(|_| Failure::new("a waiter panicked"))??;
                check_eq!(wake, Wake::Notified, "a wait that was woken");
            }
            Ok::<(), Failure>(())
        })?;
    }
    Ok(())
}

/// The waiter is most likely asleep when the command is sent.
fn an_answer_ends_a_wait_that_has_begun<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let ready = Ready::open(rig)?;
    let mailbox = ready.mailbox()?;
    for tag in 0..u16::try_from(rig.times(50, 5))? {
        let ticket = quiet(&mailbox, rig.short(Duration::from_millis(1)), ready.patience)?;
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| mailbox.wait(ticket, ENDLESS));
            std::thread::yield_now();
            send(&mailbox, SQ0, &echo(tag)?)?;
            let wake = waiter.join().map_err(|_| Failure::new("the waiter panicked"))??;
            check_eq!(wake, Wake::Notified, "a wait for an answer");
            receive_echo(&mailbox, tag, ready.patience)
        })?;
    }
    Ok(())
}

/// Ticket, look, wait: with that order no timing can lose an answer, so that no wait needs a
/// timeout.
fn a_waiter_sees_every_answer<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let ready = Ready::open(rig)?;
    let mailbox = ready.mailbox()?;
    let count = u16::try_from(rig.times(2000, 100))?;
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| -> Result<(), Failure> {
            for tag in 0..count {
                let completion = receive(&mailbox, ENDLESS)?;
                check_eq!(completion.tag.as_u16(), tag, "the tag");
            }
            Ok(())
        });
        let mut sent = Ok(());
        for tag in 0..count {
            sent = push_when_possible(&mailbox, tag, ready.patience);
            if sent.is_err() {
                break;
            }
        }
        // If something was not sent, the receiver is left hanging, which the limit of the case
        // ends.
        let received = receiver.join().map_err(|_| Failure::new("the receiver panicked"))?;
        sent.and(received)
    })
}

fn push_when_possible<M: Mailbox>(
    mailbox: &M,
    tag: u16,
    patience: Duration,
) -> Result<(), Failure> {
    let message = echo(tag)?;
    crate::check::until("room in the queue", patience, || {
        Ok(mailbox.push(SQ0, &message)? == et_hal::Push::Accepted)
    })?;
    Ok(mailbox.kick()?)
}
