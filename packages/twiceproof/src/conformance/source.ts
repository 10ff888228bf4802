import { describe, test } from 'node:test';
import type { Message, MessageId } from '../message.ts';
import type { Source, SourcedMessage } from '../source.ts';
import { holdingCases } from './source-holding.ts';
import { createKit, type SourceCase } from './source-kit.ts';
import { parkingCases } from './source-parking.ts';
import { readingCases } from './source-reading.ts';

/** What the suite needs in order to try a source. */
export interface SourceHarness {
  /** A new outbox that nobody else uses, divided into so many shards. */
  createOutbox(options: { shards: number }): Promise<OutboxUnderTest>;
  /** Whether batches of several shards can be held at once. */
  holdsSeveral: boolean;
}

export interface OutboxUnderTest {
  begin(): Promise<WritingTransaction>;
  /** Each as if it were in a process of its own. */
  openSource(): Promise<SourceUnderTest>;
  /** What is kept aside, in its order. */
  parked(): Promise<ParkedMessage[]>;
  close(): Promise<void>;
}

/** A transaction that tells what happened, as an application writes it. */
export interface WritingTransaction {
  /** Takes its place among the transactions of the database, without having written to the outbox: its id is drawn here. */
  enter(): Promise<void>;
  /** Locks the aggregate until the transaction ends, and answers its new version: how often it was changed. */
  change(aggregateId: string): Promise<number>;
  /** Answers the messages as they are stored. */
  append(messages: readonly Message[]): Promise<SourcedMessage[]>;
  savepoint(): Promise<void>;
  rollbackToSavepoint(): Promise<void>;
  commit(): Promise<void>;
  rollback(): Promise<void>;
}

export interface SourceUnderTest {
  source: Source;
  /** The connections by which it holds batches are gone when this resolves, as if its process had been killed. */
  cut(): Promise<void>;
  close(): Promise<void>;
}

export interface ParkedMessage {
  id: MessageId;
  payload: Uint8Array;
  reason: string;
}

/** Registers one test for each promise of `source.ts`. */
export function testSource(name: string, harness: SourceHarness): void {
  describe(`source ${name}`, () => {
    for (const each of [...readingCases, ...holdingCases, ...parkingCases]) register(harness, each);
  });
}

function register(harness: SourceHarness, { name, shards = 1, run }: SourceCase): void {
  test(name, async () => {
    await using kit = await createKit(harness, shards);
    await run(kit);
  });
}
