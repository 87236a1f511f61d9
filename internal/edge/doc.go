// Package edge is what all doors of a node share, whatever they speak: who calls and what they may, how much may be under way of a
// tenant and of all, which connections are kept, and how a fact leaves as a code and a status.
//
// Promised: a call whose token ends, or allows less, ends (auth.Calls); every bound is named by the error that it causes; no text of
// an internal error leaves. Elsewhere: methods and their rules (api), JSON (rest), git's protocol (githttp).
package edge
