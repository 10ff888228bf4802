CREATE TABLE orders (
  order_id uuid PRIMARY KEY,
  -- Whose it is: nobody else sees it.
  tenant text NOT NULL,
  account_id bigint NOT NULL,
  amount_cents bigint NOT NULL CHECK (amount_cents > 0),
  status text NOT NULL,
  -- Drawn under the row's lock; the event of each change carries it.
  version int NOT NULL DEFAULT 1,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
