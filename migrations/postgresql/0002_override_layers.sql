-- From here on a profile's record may have version 2: an override with author, reason and the assignment beneath. No table
-- changes; the step keeps away programs that do not know such records.
SELECT 1;
