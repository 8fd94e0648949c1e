package control

// LookForClient is lookForClient for the tests.
var LookForClient = lookForClient
