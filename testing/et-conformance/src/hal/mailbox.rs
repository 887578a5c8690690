//! `Mailbox`: messages.

use std::collections::BTreeSet;

use et_devapi::msg::ops::{self, Body, Command, Completion};
use et_devapi::msg::{CommandFlags, Tag};
use et_devapi::pci::MAILBOX_BAR;
use et_hal::{BarOffset, Error, ErrorKind, Hal, Mailbox, MailboxLayout, Mmio, Pop, Push, QueueId};

use super::{Ready, SQ0, echo, ping, receive, receive_echo, send};
use crate::check::{check, check_eq, check_matches, fails_as, until};
use crate::{Failure, Rig};

crate::case::group! { Hal, "hal::mailbox":
    every_message_is_answered_in_order,
    queues_that_do_not_exist_are_refused,
    a_message_goes_in_whole_or_not_at_all,
    a_full_queue_takes_nothing_and_loses_nothing,
    every_queue_takes_messages,
    a_message_that_does_not_fit_the_buffer_stays,
    a_reopened_mailbox_goes_on_where_the_device_is,
    threads_that_push_at_the_same_time_lose_nothing,
    layouts_that_do_not_fit_the_bar_are_refused,
}

fn every_message_is_answered_in_order<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let ready = Ready::open(rig)?;
    let mailbox = ready.mailbox()?;
    // Far more bytes than a ring has, so that the indices wrap, at every phase of the ring.
    for tag in 0..u16::try_from(rig.times(3000, 300))? {
        ping(&mailbox, tag, ready.patience)?;
    }
    check_eq!(mailbox.pop(&mut [0; 512])?, Pop::Empty, "the queue after the last answer");
    Ok(())
}

fn queues_that_do_not_exist_are_refused<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let ready = Ready::open(rig)?;
    let mailbox = ready.mailbox()?;
    let layout = ready.layout.ops_mailbox;
    let beyond = |count: u16| u8::try_from(count).unwrap_or(u8::MAX);
    for queue in [
        QueueId::Submission(beyond(layout.submission.count)),
        QueueId::HighPriority(beyond(layout.high_priority.count)),
        QueueId::Submission(u8::MAX),
        QueueId::HighPriority(u8::MAX),
    ] {
        let outcome = mailbox.max_message_bytes(queue);
        fails_as("the size of no queue", outcome, ErrorKind::OutOfBounds)?;
        fails_as("a push to no queue", mailbox.push(queue, &echo(1)?), ErrorKind::OutOfBounds)?;
    }
    ping(&mailbox, 1, ready.patience)
}

fn a_message_goes_in_whole_or_not_at_all<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let ready = Ready::open(rig)?;
    let mailbox = ready.mailbox()?;
    let most = mailbox.max_message_bytes(SQ0)?;
    check!(most >= ops::MAX_COMMAND_BYTES, "a queue takes {most} bytes at most");
    for len in [most + 1, most + 1000] {
        fails_as("a push", mailbox.push(SQ0, &vec![0; len]), ErrorKind::TooLarge)?;
    }
    // Had any of it gone in, the device would not find the next header.
    for tag in 0..4 {
        ping(&mailbox, tag, ready.patience)?;
    }
    Ok(())
}

fn a_full_queue_takes_nothing_and_loses_nothing<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let ready = Ready::open(rig)?;
    let mailbox = ready.mailbox()?;
    let most = mailbox.max_message_bytes(SQ0)?;
    for round in 0..rig.times(8, 2) {
        let first = u16::try_from(round * 4096)?;
        let mut tag = first;
        // A device may look at a queue before it is told, so that there is room again.
        while usize::from(tag - first) < 4000 && mailbox.push(SQ0, &echo(tag)?)? == Push::Accepted {
            tag += 1;
        }
        let pushed = usize::from(tag - first);
        check!(pushed * echo(0)?.len() + echo(0)?.len() > most, "full after {pushed} messages");
        mailbox.kick()?;
        for tag in first..tag {
            receive_echo(&mailbox, tag, ready.patience)?;
        }
        check_eq!(mailbox.pop(&mut [0; 512])?, Pop::Empty, "the queue after the last answer");
    }
    Ok(())
}

fn every_queue_takes_messages<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let ready = Ready::open(rig)?;
    let mailbox = ready.mailbox()?;
    let count = |count: u16| u8::try_from(count).unwrap_or(u8::MAX);
    let layout = ready.layout.ops_mailbox;
    for queue in 0..count(layout.submission.count) {
        send(&mailbox, QueueId::Submission(queue), &echo(u16::from(queue))?)?;
        receive_echo(&mailbox, u16::from(queue), ready.patience)?;
    }
    for queue in 0..count(layout.high_priority.count) {
        let mut message = [0; 64];
        let tag = Tag::new(100 + u16::from(queue));
        let len = Command::Abort.encode(tag, CommandFlags::EMPTY, &mut message)?;
        send(&mailbox, QueueId::HighPriority(queue), &message[..len])?;
        let completion = receive(&mailbox, ready.patience)?;
        check_matches!(completion, Completion { tag: its, body: Body::Abort { .. } } if *its == tag, "an abort");
    }
    Ok(())
}

fn a_message_that_does_not_fit_the_buffer_stays<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let ready = Ready::open(rig)?;
    let mailbox = ready.mailbox()?;
    send(&mailbox, SQ0, &echo(9)?)?;
    let kind = |buffer: &mut [u8]| mailbox.pop(buffer).map_err(|error| error.kind());
    until("the answer", ready.patience, || {
        let outcome = kind(&mut [0; 9]);
        check_matches!(outcome, Ok(Pop::Empty) | Err(ErrorKind::TooLarge), "a short buffer");
        Ok(outcome.is_err())
    })?;
    check_eq!(kind(&mut [0; 9]), Err(ErrorKind::TooLarge), "the same again");
    receive_echo(&mailbox, 9, ready.patience)?;
    ping(&mailbox, 10, ready.patience)
}

fn a_reopened_mailbox_goes_on_where_the_device_is<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let ready = Ready::open(rig)?;
    let mailbox = ready.mailbox()?;
    for tag in 0..50 {
        ping(&mailbox, tag, ready.patience)?;
    }
    // One answer is on its way while no one has the mailbox.
    send(&mailbox, SQ0, &echo(200)?)?;
    drop(mailbox);
    let mailbox = ready.mailbox()?;
    send(&mailbox, SQ0, &echo(201)?)?;
    receive_echo(&mailbox, 200, ready.patience)?;
    receive_echo(&mailbox, 201, ready.patience)
}

fn threads_that_push_at_the_same_time_lose_nothing<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    const THREADS: u16 = 4;
    let ready = Ready::open(rig)?;
    let mailbox = ready.mailbox()?;
    let each = u16::try_from(rig.times(400, 40))?;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (mailbox, patience) = (&mailbox, ready.patience);
                scope.spawn(move || -> Result<(), Failure> {
                    for number in 0..each {
                        let message = echo(thread * each + number)?;
                        until("a push", patience, || match mailbox.push(SQ0, &message) {
                            Ok(push) => Ok(push == Push::Accepted),
                            Err(error) if error.kind() == ErrorKind::Busy => Ok(false),
                            Err(error) => Err(error.into()),
                        })?;
                        mailbox.kick()?;
                    }
                    Ok(())
                })
            })
            .collect();
        let take = || -> Result<(), Failure> {
            let mut seen = BTreeSet::new();
            for _ in 0..THREADS * each {
                let completion = receive(&mailbox, ready.patience)?;
                check_matches!(completion, Completion { body: Body::Echo { .. }, .. }, "an answer");
                check!(seen.insert(completion.tag), "{completion:?} came twice");
            }
            let all = (0..THREADS * each).map(Tag::new).collect();
            check_eq!(seen, all, "the tags that were answered");
            Ok(())
        };
        let taken = take();
        for thread in threads {
            thread.join().map_err(|_| Failure::new("a thread panicked"))??;
        }
        taken
    })
}

fn layouts_that_do_not_fit_the_bar_are_refused<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let ready = Ready::open(rig)?;
    let good = ready.layout.ops_mailbox;
    let end = ready.hal.window(MAILBOX_BAR)?.len_bytes();
    let beyond = |layout: &mut MailboxLayout, at| layout.completion.at = BarOffset::new(at);
    for at in [end, end - 8, u64::MAX - 7] {
        let mut layout = good;
        beyond(&mut layout, at);
        let outcome = ready.hal.open_mailbox(&layout).map(|_| ());
        // The end of the BAR may hold doorbells, where no queue can be either.
        let kind = outcome.map_err(|error| error.kind());
        check_matches!(
            kind,
            Err(ErrorKind::OutOfBounds | ErrorKind::Unsupported),
            "a completion queue at {at:#x}"
        );
    }
    let mut layout = good;
    beyond(&mut layout, good.completion.at.as_u64() + 3);
    let kind = ready.hal.open_mailbox(&layout).map(|_| ()).map_err(|error| error.kind());
    check_matches!(
        kind,
        Err(ErrorKind::Misaligned | ErrorKind::OutOfBounds),
        "a completion queue at an odd place"
    );
    ping(&ready.mailbox()?, 1, ready.patience)
}
