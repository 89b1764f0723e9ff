//! Rings of persistent mapped buffers, through which values go to the device and come back.
//!
//! They are several times faster than `write_buffer` and than a fresh buffer for each readback, and in the
//! steady state they create nothing.

use std::collections::VecDeque;

use super::super::Fault;
use super::super::memory::{Ring, SMALL};
use super::device::{Gpu, Submission};
use super::prepared::Completion;

/// A buffer that is mapped, or being mapped behind a submission.
pub(super) struct StagingChunk {
    buffer: wgpu::Buffer,
    done: (async_channel::Sender<bool>, async_channel::Receiver<bool>),
    behind: Option<Submission>,
}

impl StagingChunk {
    pub(super) fn new(gpu: &Gpu, label: &str, bytes: u64, usage: wgpu::BufferUsages) -> Self {
        Self { buffer: gpu.buffer(label, bytes, usage), done: async_channel::bounded(1), behind: None }
    }

    /// Asks for the mapping, which is there when `submission` is done.
    pub(super) fn map(&mut self, mode: wgpu::MapMode, bytes: u64, submission: Submission) {
        let done = self.done.0.clone();
        self.behind = Some(submission);
        self.buffer.slice(..bytes).map_async(mode, move |result| {
            // Only a chunk that is gone does not listen.
            done.try_send(result.is_ok()).unwrap_or_default();
        });
    }

    /// Whether the buffer is mapped.
    pub(super) fn is_mapped(&self) -> bool {
        self.behind.is_none() || !self.done.1.is_empty()
    }

    /// Encodes a copy of a part of a buffer, `(buffer, offset)`, to a byte offset of this one.
    pub(super) fn copy(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        (from, offset): (&wgpu::Buffer, u64),
        at: u64,
        bytes: u64,
    ) {
        encoder.copy_buffer_to_buffer(from, offset, &self.buffer, at, bytes);
    }

    /// Appends the values of a mapped chunk, and unmaps it.
    pub(super) fn read(&self, bytes: u64, values: &mut Vec<f32>) -> Result<(), Fault> {
        let mapped = self.buffer.slice(..bytes).get_mapped_range();
        let mapped = mapped.map_err(|error| Fault::Lost(error.to_string()))?;
        // In one sequence: mapped memory may be uncached.
        values.extend_from_slice(bytemuck::cast_slice(&mapped));
        drop(mapped);
        self.buffer.unmap();
        Ok(())
    }

    /// Waits for the mapping.
    pub(super) async fn mapped(&mut self, gpu: &Gpu) -> Result<(), Fault> {
        let Some(submission) = self.behind else { return Ok(()) };
        let is_mapped = gpu.mapped(submission, &self.done.1).await?;
        self.behind = None;
        if is_mapped { Ok(()) } else { Err(Fault::Lost("a buffer can't be mapped any more".into())) }
    }
}

/// Values sent to the device.
pub(super) struct Uploads {
    chunks: VecDeque<StagingChunk>,
    chunk_bytes: u64,
}

impl Uploads {
    /// A ring for items that may go in several chunks.
    pub(super) fn new(gpu: &Gpu, ring: Ring) -> Self {
        let usage = wgpu::BufferUsages::MAP_WRITE | wgpu::BufferUsages::COPY_SRC;
        let chunks = (0..ring.count).map(|_| StagingChunk::new(gpu, "upload", ring.chunk_bytes, usage)).collect();
        Self { chunks, chunk_bytes: ring.chunk_bytes }
    }

    /// Makes the chunks writable; a fresh buffer is not mapped.
    pub(super) fn prime(&mut self, gpu: &Gpu) {
        if self.chunks.is_empty() {
            return;
        }
        let submission = gpu.submit(gpu.encoder());
        let bytes = self.chunk_bytes;
        self.chunks.iter_mut().for_each(|chunk| chunk.map(wgpu::MapMode::Write, bytes, submission));
    }

    /// Writes values at a byte offset of a buffer, before whatever is submitted later.
    pub(super) async fn write(
        &mut self,
        gpu: &Gpu,
        completion: &mut Completion,
        (buffer, offset): (&wgpu::Buffer, u64),
        data: &[f32],
    ) -> Result<(), Fault> {
        let bytes: &[u8] = bytemuck::cast_slice(data);
        // `write_buffer`, which has a staging belt of its own, is as good for little.
        if bytes.len() as u64 <= SMALL || self.chunks.is_empty() {
            gpu.queue.write_buffer(buffer, offset, bytes);
            return Ok(());
        }
        let mut offset = offset;
        for part in bytes.chunks(usize::try_from(self.chunk_bytes).unwrap_or(usize::MAX)) {
            let Some(mut chunk) = self.chunks.pop_front() else { break };
            let sent = self.send(gpu, completion, &mut chunk, (buffer, offset), part).await;
            self.chunks.push_back(chunk);
            sent?;
            offset += part.len() as u64;
        }
        Ok(())
    }

    async fn send(
        &self,
        gpu: &Gpu,
        completion: &mut Completion,
        chunk: &mut StagingChunk,
        (buffer, offset): (&wgpu::Buffer, u64),
        part: &[u8],
    ) -> Result<(), Fault> {
        chunk.mapped(gpu).await?;
        let bytes = part.len() as u64;
        let mapped = chunk.buffer.slice(..bytes).get_mapped_range_mut();
        mapped.map_err(|error| Fault::Lost(error.to_string()))?.copy_from_slice(part);
        chunk.buffer.unmap();
        let mut encoder = gpu.encoder();
        encoder.copy_buffer_to_buffer(&chunk.buffer, 0, buffer, offset, bytes);
        completion.encode(&mut encoder);
        let submission = gpu.submit(encoder);
        completion.submitted();
        chunk.map(wgpu::MapMode::Write, self.chunk_bytes, submission);
        Ok(())
    }
}

/// Use of values that are read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadBackUse {
    /// Sent to be combined, by the index of the command.
    Exchange(usize),
    /// A result of the run, or its completion marker.
    Result,
}

/// Part of values that a chunk holds.
#[derive(Clone, Copy)]
pub(super) struct ChunkPart {
    /// Number of the run that sends them.
    pub(super) order: u64,
    pub(super) target: ReadBackUse,
    /// Number of all the values.
    pub(super) length: u64,
    pub(super) is_first: bool,
    pub(super) is_last: bool,
}

/// Values that have come.
pub(super) struct Arrived {
    /// Number of the run that sent them.
    pub(super) order: u64,
    pub(super) target: ReadBackUse,
    pub(super) values: Vec<f32>,
}

/// A copy on its way to the host.
struct Pending {
    chunk: StagingChunk,
    bytes: u64,
    part: ChunkPart,
}

/// Values sent to the host, in order.
pub(super) struct Readbacks {
    free: Vec<StagingChunk>,
    /// Copies that are encoded, but not yet submitted.
    encoded: Vec<Pending>,
    pending: VecDeque<Pending>,
    /// Parts of the oldest values that have come.
    values: Vec<f32>,
    chunk_bytes: u64,
}

impl Readbacks {
    /// A ring for values that may go in several chunks.
    pub(super) fn new(gpu: &Gpu, ring: Ring) -> Self {
        let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        let free = (0..ring.count).map(|_| StagingChunk::new(gpu, "readback", ring.chunk_bytes, usage)).collect();
        let (encoded, pending, values) = (Vec::new(), VecDeque::new(), Vec::new());
        Self { free, encoded, pending, values, chunk_bytes: ring.chunk_bytes }
    }

    /// Bytes that a copy may have.
    pub(super) fn chunk_bytes(&self) -> u64 {
        self.chunk_bytes
    }

    /// Copies for which there is a chunk.
    pub(super) fn room(&self) -> usize {
        self.free.len()
    }

    /// Whether no copy is in flight.
    pub(super) fn is_idle(&self) -> bool {
        self.pending.is_empty() && self.encoded.is_empty()
    }

    /// Encodes the copy of a part of a buffer, `(buffer, offset)`. There must be room, and no more than a chunk holds.
    pub(super) fn copy(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        from: (&wgpu::Buffer, u64),
        bytes: u64,
        part: ChunkPart,
    ) {
        if let Some(chunk) = self.free.pop() {
            chunk.copy(encoder, from, 0, bytes);
            self.encoded.push(Pending { chunk, bytes, part });
        }
    }

    /// The encoded copies were submitted.
    pub(super) fn submitted(&mut self, submission: Submission) {
        for mut pending in self.encoded.drain(..) {
            pending.chunk.map(wgpu::MapMode::Read, pending.bytes, submission);
            self.pending.push_back(pending);
        }
    }

    /// The encoder with the copies was thrown away.
    pub(super) fn not_submitted(&mut self) {
        self.free.extend(self.encoded.drain(..).map(|pending| pending.chunk));
    }

    /// Description of the oldest copy.
    pub(super) fn oldest(&self) -> Option<ChunkPart> {
        self.pending.front().map(|pending| pending.part)
    }

    /// The chunk of the oldest copy.
    pub(super) fn oldest_chunk(&mut self) -> Option<&mut StagingChunk> {
        self.pending.front_mut().map(|pending| &mut pending.chunk)
    }

    /// Reads the oldest copy, whose chunk is mapped; gives the values that are complete with it.
    pub(super) fn take(&mut self) -> Result<Option<Arrived>, Fault> {
        let Some(Pending { chunk, bytes, part }) = self.pending.pop_front() else { return Ok(None) };
        if part.is_first {
            self.values = Vec::with_capacity(usize::try_from(part.length).unwrap_or_default());
        }
        chunk.read(bytes, &mut self.values)?;
        self.free.push(chunk);
        let ChunkPart { order, target, is_last, .. } = part;
        Ok(is_last.then(|| Arrived { order, target, values: std::mem::take(&mut self.values) }))
    }
}
