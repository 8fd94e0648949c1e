package api

import (
	"fmt"

	"croft/cluster"
)

// Cluster is a cluster without its secrets, with what follows from its record.
type Cluster struct {
	cluster.Cluster
	SecretOutputs []string `json:"secret_outputs,omitempty"` // names of sealed outputs, in order
	Settled       bool     `json:"settled"`                  // no change is in progress
	Reused        bool     `json:"reused,omitempty"`         // whether the request was answered with a cluster that existed
}

// EntityTag returns the header ETag of an answer with the cluster. It fits no later cluster of the same name or UUID:
// their generations start at 1, too, but they were created at another time.
func (c Cluster) EntityTag() string {
	return fmt.Sprintf(`"%x-%d"`, c.Created.UnixNano(), c.Generation)
}

// ClusterOf returns a cluster as the API shows it.
func ClusterOf(c cluster.Cluster) Cluster {
	c.Appliance = cluster.ApplianceName(c.Appliance)
	secret := c.SecretOutputs()
	c.Sealed, c.Digest = nil, "" // a digest reveals secrets that are easy to guess
	c.Members, c.Uses = append([]cluster.Member{}, c.Members...), append([]cluster.Use{}, c.Uses...)
	return Cluster{Cluster: c, SecretOutputs: secret, Settled: c.Settled()}
}

// ClusterList has clusters.
type ClusterList struct {
	Clusters []Cluster `json:"clusters"` // by name
	More
}

// ClusterNamed names a cluster.
type ClusterNamed struct {
	InProject

	ID string `path:"id" json:"-"` // UUID of the cluster, or its name
}

// ClusterWait says how long to wait until no operation on the cluster is in progress.
type ClusterWait struct {
	Wait int `query:"wait" json:"-" minimum:"1" maximum:"600"` // longest wait in seconds; no wait by default
}

// ClusterAwaited is the input of getCluster.
type ClusterAwaited struct {
	ClusterNamed
	ClusterWait
}

// ClusterFilter is the input of listClusters.
type ClusterFilter struct {
	InProject

	// State selects the clusters in a state.
	State     cluster.State `query:"state"     json:"-" enum:"SCHEDULING,BUILDING,READY,RESIZING,DEGRADED,ERROR,DELETING"`
	Appliance string        `query:"appliance" json:"-" maxLength:"63"` // only clusters of this appliance
	Site      string        `query:"site"      json:"-" maxLength:"63"` // only clusters at this site
}

// NewCluster is the input of createCluster.
type NewCluster struct {
	InProject
	ClusterWait
	cluster.Spec
}

// ClusterCandidates is the input of explainCluster.
type ClusterCandidates struct {
	InProject
	cluster.Spec
}

// ClusterRemoval is the input of deleteCluster.
type ClusterRemoval struct {
	ClusterNamed

	// Force deletes the cluster although others use it. For its user and for admins of the project.
	Force bool `query:"force" json:"-"`
	// Abandon forgets the cluster without asking its site, so the rest of it stays there. For its user and for admins
	// of the project.
	Abandon bool `query:"abandon" json:"-"`
}

// ClusterHostNamed names a slave of a cluster.
type ClusterHostNamed struct {
	ClusterNamed

	Host string `path:"host" json:"-"` // UUID or name of a slave, or last
}

// UseNamed names a use of a cluster.
type UseNamed struct {
	ClusterNamed

	Use cluster.UseID `path:"use" json:"-"` // UUID of the use
}

// OutputNamed names an output of a cluster.
type OutputNamed struct {
	ClusterNamed

	Output string `path:"output" json:"-"` // name of the output
}

// ClusterChange is the input of changeCluster.
type ClusterChange struct {
	ClusterNamed
	cluster.Change

	Base Match `header:"If-Match" json:"-"` // generation that the change builds on; left out: any
}

// ClusterEventList has the events of a cluster.
type ClusterEventList struct {
	Events []cluster.Event `json:"events"` // the oldest first
}

// ClusterOutput is an output of a cluster, only for its user.
type ClusterOutput struct {
	Name string `json:"name"` // name of the output
	// What the template puts out.
	Value any `json:"value"`
	// It is kept sealed, and is in no other answer.
	Secret bool `json:"secret"`
}

// ClusterAccount is an account on the machines of a cluster, only for its user.
type ClusterAccount struct {
	Username string `json:"username"` // at the site
	// For the user of the account alone.
	Password string `json:"password"`
}
