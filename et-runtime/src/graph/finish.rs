//! From what a builder collected to a graph.

use std::sync::{Arc, OnceLock};

use super::builder::GraphBuilder;
use super::hazard::Hazards;
use super::shape::{Graph, Node, Places, Reason, Shape};
use super::span::to_u32;
use super::{GraphError, TransientMemory};

impl GraphBuilder {
    /// Makes the graph.
    ///
    /// # Errors
    /// [`GraphError::Cycle`], with its path; [`GraphError::Memory`] for transient buffers;
    /// [`GraphError::TooMany`] if an earlier call failed with it for edges.
    pub fn build(mut self) -> Result<Graph, GraphError> {
        if let Some(error) = self.overflow.take() {
            return Err(error);
        }
        let is_forward = self.explicit.iter().all(|edge| edge & 0xffff_ffff < edge >> 32);
        self.merge_explicit();
        let (successors, reasons) = self.transpose();
        let roots = (0..).zip(&self.nodes[..self.nodes.len() - 1]);
        let roots = roots.filter(|(_, node)| node.fan_in == 0).map(|(task, _)| task).collect();
        let mut shape = Shape {
            nodes: self.nodes,
            successors,
            reasons,
            roots,
            functions: self.functions,
            names: self.names,
            accesses: self.accesses,
            core_sets: self.core_sets,
            core_of: self.core_of,
            shires: self.shires,
            parts: self.parts,
            recorded: self.recorded,
            tests: self.tests,
            memory: self.memory,
            kinds: self.kinds,
            is_forward,
        };
        shape.shrink();
        let Hazards { mut keep, mut spans, mut span_space, .. } = self.hazards;
        keep.shrink_to_fit();
        spans.shrink_to_fit();
        span_space.shrink_to_fit();
        self.words.shrink_to_fit();
        self.copies.shrink_to_fit();
        self.tested.shrink_to_fit();
        let graph = Graph {
            shape: Arc::new(shape),
            words: Arc::new(self.words),
            places: Arc::new(Places {
                keep,
                spans,
                span_space,
                footprint: OnceLock::new(),
                transient: TransientMemory::default(),
            }),
            copies: Arc::new(self.copies),
            tested: Arc::new(self.tested),
        };
        graph.check_cycle()?;
        self.transients.place(graph)
    }

    /// Ends the rows, and moves the explicit edges into them.
    fn merge_explicit(&mut self) {
        self.nodes.push(Node {
            row: to_u32(self.predecessors.len()),
            args: to_u32(self.words.len()),
            accesses: to_u32(self.accesses.spans.len()),
            ..Node::default()
        });
        if self.explicit.is_empty() {
            return;
        }
        self.explicit.sort_unstable();
        let room = self.predecessors.len() + self.explicit.len();
        let old = std::mem::replace(&mut self.predecessors, Vec::with_capacity(room));
        let old_reasons = std::mem::replace(&mut self.reasons, Vec::with_capacity(room));
        let mut explicit = self.explicit.iter().peekable();
        let mut start = self.nodes[0].row;
        for task in 0..self.nodes.len() - 1 {
            let end = self.nodes[task + 1].row;
            let row = start as usize..end as usize;
            for (&before, &reason) in old[row.clone()].iter().zip(&old_reasons[row]) {
                self.edges.push(before, to_u32(task), reason);
            }
            while let Some(edge) = explicit.next_if(|&&edge| edge >> 32 == task as u64) {
                // The mask makes it exact.
                self.edges.push((edge & 0xffff_ffff) as u32, to_u32(task), Reason::EXPLICIT);
            }
            self.edges.drain_into(&mut self.predecessors, &mut self.reasons);
            self.nodes[task + 1].row = to_u32(self.predecessors.len());
            start = end;
        }
    }

    /// Turns rows of predecessors into rows of successors.
    fn transpose(&mut self) -> (Vec<u32>, Vec<Reason>) {
        let tasks = self.nodes.len() - 1;
        let mut next = vec![0u32; tasks + 1];
        for &before in &self.predecessors {
            next[before as usize + 1] += 1;
        }
        for task in 0..tasks {
            next[task + 1] += next[task];
        }
        let mut successors = vec![0; self.predecessors.len()];
        let mut reasons = vec![Reason(0); self.predecessors.len()];
        for task in 0..tasks {
            let row = self.nodes[task].row as usize..self.nodes[task + 1].row as usize;
            self.nodes[task].fan_in = to_u32(row.len());
            for (&before, &reason) in self.predecessors[row.clone()].iter().zip(&self.reasons[row])
            {
                let at = &mut next[before as usize];
                successors[*at as usize] = to_u32(task);
                reasons[*at as usize] = reason;
                *at += 1;
            }
        }
        // Each start has become the end of its row, which is the start of the next.
        self.nodes[0].row = 0;
        for (node, &end) in self.nodes[1..].iter_mut().zip(&next) {
            node.row = end;
        }
        (successors, reasons)
    }
}
