// Package rules compiles and runs expressions over the declared fields of a collection: filters, and rulesets that judge
// a row. The language is CEL; nothing in it has input, output or a clock, so that equal inputs give equal verdicts.
//
// An expression sees the row's fields by name, the caller's parameters as p (or params), the request as req and the
// instant of the search as now. Reading a field that the row does not have, a parameter of an unfit kind and arithmetic
// without a result leave an expression undecided, unless the rest decides it: `a && b` is false if either is, `a || b` is
// true if either is. A filter that is undecided does not pass, and neither does its negation; has(field) asks.
//
// What most expressions are made of runs as Go closures, the rest in CEL's interpreter; both give the same answers.
//
// A Schema compiles: a Filter from one expression, a Ruleset from a list of rules. Both are kept
// and shared by searches. Bind adds the inputs of one search and returns a BoundFilter or a Judge,
// which then runs over rows, each through the interface Row. Compiling costs far more than a run,
// and a search has many rows: everything that does not depend on the row is done before.
//
// Sources and parameters come from clients. Each has a limit, of length, of nodes, of estimated
// cost, of steps of a regular expression, and a panic of the expression library costs the request
// only.
package rules
