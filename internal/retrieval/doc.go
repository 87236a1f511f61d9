// Package retrieval answers who may do something and who fits best. An Index holds the live points of one collection in
// memory; a search runs gate, retrieve, judge and merge over it, in this order.
//
// The gate is one conjunction of sets of rows, evaluated before anything is scored, and counts what it blocks. Retrieval
// takes the nearest rows of those that pass, the judge applies rules to them and asks for more where blocks leave too
// few, and the merge makes one score of it all. No plan returns a row that fails the gate, none returns fewer rows than
// asked for while more pass, and no score depends on which other rows passed.
//
// An Index is derived from what is stored and can be rebuilt at any time. It knows no clock: the instant that
// credentials are judged at comes with the search.
package retrieval
