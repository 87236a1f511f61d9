// Package strictjson reads and writes JSON without reflection: a reader that refuses by its path whatever is not exactly right,
// and a writer that appends to a buffer.
//
// Promised: what the reader takes is JSON to every other reader as well; of two fields with one name none is chosen; integers of
// 64 bits are exact; what the writer has written is JSON in UTF-8. Elsewhere: which fields a document has, and what they mean
// (the callers' tables).
//
// A caller reads by calls in the order of the document: Object asks it which field a name is, and has it read the value by a method of
// the type that belongs there. After End it asks for Fact once, since a reader that has refused something does
// nothing and returns zero values. So code that reads has no branches for errors.
//
// A Reader goes through the document once. It makes no tree: what it keeps besides the document is the path to the value that is
// being read. Values of the client's own are passed by Raw, as they stand.
//
// Numbers that a client hands back or compares are written as strings of digits (Exact) and read in both forms (Unsigned). Bytes
// are text under the name of their field where they are text, and base64 under the name with _base64 otherwise.
package strictjson
