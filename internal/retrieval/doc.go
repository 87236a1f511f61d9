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
//
// A point is one row, which never changes: a point that is written again gets a new row, and the
// old one is dead. The values of declared fields are in columns, one for each field, and for fields
// of words there is a set of live rows for each word. The gate combines these sets under a read
// lock; everything after it works on a view, which is the rows of that instant, without a lock.
// Background work (Tend) drops dead rows and adds new ones to the graph; searches find every row in
// any case, by comparing those that the graph does not cover.
package retrieval
