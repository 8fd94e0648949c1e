package control

import (
	"croft/tenant/access"
)

var clusterOperations = noun{Tag: "clusters",
	Description: "Clusters: a master and any number of slaves that an appliance describes and a site builds. They " +
		"are named by UUID or by their name in the project, and their hosts are instances only at the site local. " +
		"A change is written down when it is answered with 202, and done after that; `wait` waits for its end.",
	Home: true,
	Operations: []Operation{
		{ID: "listClusters", At: "GET /v1/clusters", May: access.Reads,
			Summary: "List clusters",
			serve:   listClusters},
		{ID: "createCluster", At: "POST /v1/clusters", May: access.Changes, Personal: true,
			Summary: "Ask for a cluster, and get a new one or one that can be reused",
			Description: "A cluster of the same user, appliance and parameters that is large enough is reused, " +
				"unless `reuse` is `never`: the answer is that one, with one use more. The very same request with " +
				"the same `id` is answered with what it made. Where no site can build the cluster, the problem " +
				"no_capacity says why for each site.",
			serve: createCluster},
		// Changes: like createCluster, since it reveals how full sites are
		{ID: "explainCluster", At: "POST /v1/candidates/clusters", May: access.Changes, Log: never,
			Summary: "Say where a cluster would be built, and why not elsewhere",
			serve:   explainCluster},
		{ID: "getCluster", At: "GET /v1/clusters/{id}", May: access.Reads,
			Summary: "Get a cluster",
			Description: "For 24 hours after its end the answer is the problem gone, by the UUID, which has the " +
				"last state of the cluster.",
			serve: getCluster},
		{ID: "changeCluster", At: "PATCH /v1/clusters/{id}", May: access.Changes,
			Summary: "Resize a cluster, or change its name or how long it stays",
			serve:   changeCluster},
		{ID: "deleteCluster", At: "DELETE /v1/clusters/{id}", May: access.Changes,
			Summary: "Remove a cluster and all of its hosts",
			serve:   deleteCluster},
		{ID: "listClusterEvents", At: "GET /v1/clusters/{id}/events", May: access.Reads,
			Summary: "List what happened to a cluster",
			serve:   listClusterEvents},
		{ID: "addClusterHost", At: "POST /v1/clusters/{id}/hosts", May: access.Changes,
			Summary: "Make a cluster larger by one slave",
			Description: "Each request adds one. To repeat a request whose answer was lost, change `slaves` of " +
				"the cluster instead, which has the same effect however often it comes.",
			serve: addClusterHost},
		{ID: "removeClusterHost", At: "DELETE /v1/clusters/{id}/hosts/{host}", May: access.Changes,
			Summary: "Make a cluster smaller by one slave",
			Description: "Each request for `last` removes one. To repeat a request whose answer was lost, name " +
				"the slave, or change `slaves` of the cluster instead.",
			serve: removeClusterHost},
		{ID: "endUse", At: "DELETE /v1/clusters/{id}/uses/{use}", May: access.Changes,
			Summary: "End a use of a cluster, which is idle without any",
			serve:   endUse},
		// Changes: for oneself
		{ID: "makeAccount", At: "PUT /v1/clusters/{id}/accounts/me", May: access.Changes, Personal: true,
			Summary: "Get the caller's account on the machines of a cluster, made by its agent if necessary",
			serve:   makeAccount},
		{ID: "removeAccount", At: "DELETE /v1/clusters/{id}/accounts/me", May: access.Changes, Personal: true,
			Summary: "Forget the caller's account; on the machines it stays",
			serve:   removeAccount},
		// Changes: of one's own clusters
		{ID: "readOutput", At: "POST /v1/clusters/{id}/outputs/{output}", May: access.Changes,
			Summary: "Read an output of one's own cluster, also a secret one; each read is in the action log",
			serve:   readOutput},
	},
}

var applianceOperations = noun{Tag: "appliances",
	Description: "What clusters are for, such as slurm, and how each site builds that: its implementations. " +
		"Members write the ones of their project, operators those for all.",
	Home: true,
	Operations: []Operation{
		{ID: "listAppliances", At: "GET /v1/appliances", May: access.Reads,
			Summary: "List the appliances that the project may use",
			serve:   listAppliances},
		// Changes: of the project; only operators write public ones
		{ID: "createAppliance", At: "POST /v1/appliances", May: access.Changes,
			Summary:     "Create an appliance",
			Description: "Of the project; of the whole cloud, if it is public, which operators alone may make.",
			serve:       createAppliance},
		{ID: "getAppliance", At: "GET /v1/appliances/{name}", May: access.Reads,
			Summary: "Get an appliance",
			serve:   getAppliance},
		{ID: "changeAppliance", At: "PATCH /v1/appliances/{name}", May: access.Changes,
			Summary: "Change an appliance; clusters that are there stay",
			serve:   changeAppliance},
		{ID: "removeAppliance", At: "DELETE /v1/appliances/{name}", May: access.Changes,
			Summary: "Remove an appliance without implementations",
			serve:   removeAppliance},
		{ID: "listImplementations", At: "GET /v1/appliances/{name}/implementations", May: access.Reads,
			Summary: "List how sites build an appliance",
			serve:   listImplementations},
		{ID: "addImplementation", At: "POST /v1/appliances/{name}/implementations", May: access.Changes,
			Summary: "Say how a site builds an appliance, from the next cluster on",
			Description: "The text is read before it is stored: the error of a wrong text has its line. It gets " +
				"the next revision; clusters that are there stay as they were built.",
			serve: addImplementation},
		{ID: "getImplementation", At: "GET /v1/appliances/{name}/implementations/{id}", May: access.Reads,
			Summary: "Get an implementation",
			serve:   getImplementation},
		{ID: "changeImplementation", At: "PATCH /v1/appliances/{name}/implementations/{id}", May: access.Changes,
			Summary: "Permit or end the use of an implementation for new clusters",
			serve:   changeImplementation},
		{ID: "removeImplementation", At: "DELETE /v1/appliances/{name}/implementations/{id}", May: access.Changes,
			Summary: "Remove an implementation that no cluster was built by",
			serve:   removeImplementation},
	},
}

// nouns has all operations of the API, in the order of its document.
func nouns() []noun {
	return []noun{
		cloudOperations,
		instanceOperations,
		claimOperations,
		poolOperations,
		ticketOperations,
		keyOperations,
		projectOperations,
		tokenOperations,
		imageOperations,
		objectOperations,
		aggregateOperations,
		policyOperations,
		clusterOperations,
		siteOperations,
		credentialOperations,
		applianceOperations,
		logOperations,
		hostOperations,
		catalogueOperations,
		auditOperations,
		invitationOperations,
		partitionOperations,
	}
}
