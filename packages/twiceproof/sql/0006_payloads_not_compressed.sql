-- What is compressed takes little room in its row and much in the memory of whoever reads it, so the size of a page of rows
-- would say nothing of what it becomes. Not compressed, a payload of more than some 2,000 bytes stands apart from its row
-- (TOAST), and while any does the relay measures its pages. With the partitions that are there; new ones are made alike.

ALTER TABLE :"schema".outbox ALTER payload SET STORAGE EXTERNAL;
