package control

// nouns has all operations of the API, in the order of its document.
func nouns() []noun {
	return []noun{
		cloudOperations,
		instanceOperations,
		claimOperations,
		poolOperations,
		ticketOperations,
		volumeOperations, snapshotOperations,
		backupOperations, backupStoreOperations, backupScheduleOperations,
		catalogOperations,
		keyOperations,
		projectOperations,
		tokenOperations,
		imageOperations,
		objectOperations,
		aggregateOperations,
		policyOperations,
		sizeOperations,
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
