package auth

import (
	"fmt"
	"slices"
	"strings"
)

const (
	maxQueues     = 64  // patterns of a token: each op on a queue looks at all of them
	maxQueueBytes = 129 // of one: a name of 128, and the star
)

// OfQueues are the scopes that count only for the queues which a token's patterns name.
const OfQueues = TaskCreate | TaskWork | TaskRead | TaskOperate | Admin

// AllQueues reports whether the token reaches every queue of its tenant: it has no patterns, or one that every name matches.
func (p *Principal) AllQueues() bool { return len(p.Queues) == 0 || slices.Contains(p.Queues, "*") }

// ReachesQueue reports whether the token's scopes count for a queue. No name stands for all queues at once.
func (p *Principal) ReachesQueue(name string) bool {
	if len(p.Queues) == 0 {
		return true
	}
	return slices.ContainsFunc(p.Queues, func(pattern string) bool {
		prefix, open := strings.CutSuffix(pattern, "*")
		if open {
			return strings.HasPrefix(name, prefix) && (name != "" || prefix == "")
		}
		return name != "" && name == pattern
	})
}

// keepsQueues reports whether p reaches all that old reached, by each pattern alone: several that make up one pattern of old together
// do not count.
func (p *Principal) keepsQueues(old *Principal) bool {
	if p.AllQueues() {
		return true
	}
	return len(old.Queues) > 0 && !slices.ContainsFunc(old.Queues, func(had string) bool {
		return !slices.ContainsFunc(p.Queues, func(has string) bool {
			prefix, open := strings.CutSuffix(has, "*")
			return has == had || open && strings.HasPrefix(had, prefix)
		})
	})
}

// checkQueues holds patterns to the form of a queue's name, or of the beginning of one with * behind it.
func checkQueues(patterns []string) error {
	if len(patterns) > maxQueues {
		return fmt.Errorf("queues: %d patterns are more than %d", len(patterns), maxQueues)
	}
	for _, pattern := range patterns {
		name, open := strings.CutSuffix(pattern, "*")
		if len(pattern) > maxQueueBytes || name == "" && !open || len(name) > maxQueueBytes-1 || !queueText(name) {
			return fmt.Errorf("queues: %q must be the name of a queue, or the beginning of one with * at its end", pattern)
		}
	}
	return nil
}

// queueText reports whether a queue's name may begin with s.
func queueText(s string) bool {
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= '0' && c <= '9', c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z':
		case i > 0 && (c == '.' || c == '_' || c == '-' || c == ':'):
		default:
			return false
		}
	}
	return true
}
