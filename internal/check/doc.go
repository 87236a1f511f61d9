// Package check judges what a run of Millrace did: from what its clients saw, what its log holds and what can be read
// back afterwards.
//
// There are two kinds of judge. The checkers are pure functions over a ledger, the record of every call that a client
// made and of how it ended, and over a read-back of the final state: nothing acknowledged is lost, leases exclude each
// other, effects happen exactly once, money is conserved, a key names one task, tenants do not see each other. The
// Model replays log entries on plain maps and says whether each result was allowed.
//
// Nothing here shares code with what it judges: the model is written from the documented behaviour, slow and obvious,
// and where that leaves a choice (the jitter of a retry, which due timers a bounded tick reached) it keeps every
// standing that is possible and lets later answers rule some out. A call ends as ok, refused or unknown: ok must be
// found afterwards, refused must not, unknown may be either, but whole.
//
// A checker that had nothing to judge reports an invalid run, never a green one. Elsewhere: how faults are made and
// ledgers are written (test/chaos), linearizability search and random histories against the real machines (checktest).
package check
