// Package clients makes clients from the OpenAPI document with the generators that people use, and takes an instance
// through its life with each.
package clients
