// Package backup keeps the state of a whole server outside of it, and makes data directories of it.
//
// A backup is a directory, or one file of the form of tar with the same names in it: for each shard a folder of the tables
// that package store exports, and MANIFEST, which says what they are, with sums. The manifest is written last and has a sum
// of its own: a directory without it, or with one that does not match, is not a backup. DESIGN.md has the forms.
//
// A data directory that is made of a backup, or of what the survivor of a lost majority has, begins another history: another
// identity, logs that begin behind the state, and a floor under tokens and revisions, so that what the old servers gave out
// is never taken for what the new one gives out. Until it is whole a mark keeps servers from starting on it.
//
// Elsewhere: how a running node gives its state (node.Backup), the tables and their verification (store), what the settings
// of a cluster have to do with a directory (server).
//
// The way of a backup: Create opens the place, a Writer takes in what the server sends (a head,
// then each shard with its tables, then the files of repositories), and Finish writes the manifest.
// The way back: Open reads the manifest, Verify reads everything, Restore makes a directory.
// Recover needs no backup: it applies what the survivor's own log has, and puts an empty log in its
// place.
package backup
