CREATE TABLE charges (
  charge_id uuid PRIMARY KEY,
  order_id uuid NOT NULL,
  amount_cents bigint NOT NULL CHECK (amount_cents > 0),
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  -- The second line of defence. The first is the inbox; experiments drop this one, to test that one alone.
  CONSTRAINT charges_once UNIQUE (order_id)
);

-- What was done because of each message, only ever added to. Without any unique key: what is done twice stands here twice.
CREATE TABLE effects (
  id bigint GENERATED ALWAYS AS IDENTITY,
  consumer text NOT NULL,
  msg_id uuid NOT NULL,
  order_id uuid NOT NULL,
  version int NOT NULL
);

CREATE TABLE order_states (
  order_id uuid PRIMARY KEY,
  status text NOT NULL,
  version int NOT NULL
);
