//go:build !mutants

package commit

import "github.com/millrace/millrace/internal/core"

// Names of the planted bugs of this package. Without the build tag mutants none of their code is built.
const noFence = "no_fence"

// mutantState is what planted bugs remember: nothing in this build.
type mutantState struct{}

func (m *Machine) mutant(string) bool { return false }

// deferEffects returns the ops of c that are applied in its entry: all of them.
func (m *Machine) deferEffects(c *core.Commit) []core.Op { return c.Ops }

// applyDeferred applies what an earlier entry left undone: nothing.
func (m *Machine) applyDeferred() error { return nil }

// requestPartition is the partition whose rows hold the request ids of part: its own.
func (m *Machine) requestPartition(part *partition) core.Partition { return part.p }

// forgetReplicas gives ids of replicas that left to those that come: never.
func (m *Machine) forgetReplicas(*core.Directory) {}

// forgets reports whether a remembered request is not to be answered: never.
func (m *Machine) forgets(*partition, *core.Commit, []byte) bool { return false }
