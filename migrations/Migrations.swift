/// The schema of each kind of database as steps, embedded in the program from the SQL files beside this one.
///
/// A database's version is the number of steps that it has been through. A released step never changes.
public enum Migrations {
    /// `sqlite/`, in order.
    public static let sqlite: [[UInt8]] = [
        PackageResources._001_profiles_sql,
        PackageResources._002_projects_sql,
        PackageResources._003_exposures_and_goals_sql,
        PackageResources._004_audit_sql,
        PackageResources._005_attributes_sql,
        PackageResources._006_erasures_and_history_sql,
        PackageResources._007_periods_and_days_sql,
        PackageResources._008_sticky_documents_sql,
        PackageResources._009_override_layers_sql,
        PackageResources._010_project_names_sql,
        PackageResources._011_allocation_history_sql,
        PackageResources._012_latest_time_sql,
        PackageResources._013_frozen_results_sql,
        PackageResources._014_metric_series_sql,
        PackageResources._015_feed_sql,
        PackageResources._016_last_uses_sql,
        PackageResources._017_proposals_sql,
        PackageResources._018_bandit_looks_sql,
        PackageResources._019_store_generation_sql,
        PackageResources._020_status_history_sql,
        PackageResources._021_removed_users_sql,
        PackageResources._022_valued_events_sql,
        PackageResources._023_webhooks_sql,
        PackageResources._024_definitions_sql,
        PackageResources._025_definition_indexes_sql,
    ]

    /// `postgresql/`, in order.
    public static let postgreSQL: [[UInt8]] = [
        PackageResources._001_holdfast_sql,
        PackageResources._002_override_layers_sql,
        PackageResources._003_project_names_sql,
        PackageResources._004_allocation_history_sql,
        PackageResources._005_tally_totals_sql,
        PackageResources._006_latest_time_sql,
        PackageResources._007_frozen_results_sql,
        PackageResources._008_metric_series_sql,
        PackageResources._009_feed_sql,
        PackageResources._010_last_uses_sql,
        PackageResources._011_proposals_sql,
        PackageResources._012_bandit_looks_sql,
        PackageResources._013_store_generation_sql,
        PackageResources._014_status_history_sql,
        PackageResources._015_removed_users_sql,
        PackageResources._016_valued_events_sql,
        PackageResources._017_webhooks_sql,
        PackageResources._018_definitions_sql,
        PackageResources._019_definition_indexes_sql,
    ]
}
