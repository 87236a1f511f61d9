// Package refs is the state machine of git references: repositories, their refs, the logs of those, the rules that
// protect them, and the manifest of packs that hold their objects.
//
// It looks at no object: whether an id is held, what type it has and whether a commit descends from another are facts
// that the proposer writes into the transaction, and here they are judged together with old values, names, rules and
// limits, on state that every replica shares. A transaction is judged as a whole, as git does: all changes against the
// state before it and against each other, so that their order means nothing. DESIGN.md says how names and directories,
// logs and their expiry are kept.
//
// Promised: a refused op changes nothing; equal ops on equal state give equal results and equal changes. Elsewhere:
// the order of fence, conditions and ops, and undoing a commit (package commit, which calls Mark, Undo and Keep in step
// with the Txn's); objects and git's protocol (gitobj, githttp).
package refs
