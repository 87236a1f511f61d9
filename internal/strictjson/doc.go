// Package strictjson reads and writes JSON without reflection: a reader that refuses by its path whatever is not exactly right,
// and a writer that appends to a buffer.
//
// Promised: what the reader takes is JSON to every other reader as well; of two fields with one name none is chosen; integers of
// 64 bits are exact; what the writer has written is JSON in UTF-8. Elsewhere: which fields a document has, and what they mean
// (the callers' tables).
package strictjson
