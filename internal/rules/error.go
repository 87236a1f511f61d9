package rules

import "fmt"

// Reasons of an Error, as clients see them.
const (
	// ExpressionInvalid: a source, a ruleset or a parameter that breaks the language or a limit.
	ExpressionInvalid = "expression_invalid"
	// FieldNotIndexed: the field is declared, but expressions may not read it.
	FieldNotIndexed = "field_not_indexed"
	// ProtectedField: the field is never shown to callers, so an expression must not reveal it
	// either.
	ProtectedField = "protected_field"
	// UnknownField: the field of a decay is not declared. An unknown name within an expression is
	// ExpressionInvalid.
	UnknownField = "unknown_field"
)

// Error says why an expression, a ruleset or its inputs are refused.
type Error struct {
	Reason  string
	Rule    string // id of the rule; empty for a filter
	Line    int    // from 1; 0 where no place is to blame
	Column  int    // from 1, in characters
	Message string
}

// Error names rule and place.
func (e *Error) Error() string {
	out := e.Message
	if e.Line > 0 {
		out = fmt.Sprintf("%d:%d: %s", e.Line, e.Column, out)
	}
	if e.Rule != "" {
		out = fmt.Sprintf("rule %s: %s", e.Rule, out)
	}
	return out
}

// compilerFailed is the message of a refusal that was a panic.
const compilerFailed = "the expression cannot be compiled"

// refusePanic makes a refusal of a panic, for deferred use where the expression library is given what a user wrote. The library
// is large and its inputs are hostile: a panic in it must cost the request and nothing else.
func refusePanic(err *error) {
	if p := recover(); p != nil {
		*err = &Error{Reason: ExpressionInvalid, Line: 1, Column: 1, Message: compilerFailed}
	}
}
