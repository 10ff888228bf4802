/** What a client asks for and what it is told, whichever door it takes. */
export type Asked = { tenant: string; key: string } & (
  { create: { account_id: number; amount_cents: number } } | { setStatus: { order_id: string; status: string } }
);

export interface Answer {
  /** All that came back but the time of day: two answers of one door are the same if this is, to the byte. */
  text: string;
  order_id: string;
  status: string;
  /** Only a change of status tells it. */
  version?: number;
}

/** A failure is what a client may repeat: no whole answer, or one that says so. Anything else is thrown. */
export type Attempt = { answer: Answer } | { failure: string };

/** Longer than anything in Orders waits for a database that answers, so that who waits longer has been forgotten. */
export const attemptTimeoutMs = 20_000;
