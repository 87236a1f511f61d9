// Package live tells many listeners what changes in a topic, such as the counters of a queue. One sampler reads a topic, however many
// listen to it, and each change is encoded once. It knows no protocol and no state: a Source reads the rows. See DESIGN.md.
package live
