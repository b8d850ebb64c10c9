import Bucketing
import Storage

/// The `tracked_series` table, and the version of all its rows.
enum SeriesRows {
    /// All series that are not dropped, each with the version; one row with the version if there are none.
    static let tracked = Statement(
        "tracked_series",
        """
        SELECT \(StoredTable.trackedSeries.columnList), newest_series FROM project_state
        LEFT JOIN tracked_series ON state <> \(TrackedSeries.State.dropped.rawValue) ORDER BY number
        """)
    /// Fails with ``PostgreSQLError/versionConflict`` if series have changed.
    static let expect = Statement(
        "expect_series", "SELECT 1 / (newest_series = $1)::integer FROM project_state")
    static let raise = Statement("raise_series", "UPDATE project_state SET newest_series = newest_series + 1")
    static let noteDeletedEvents = Statement(
        "note_deleted_events", "UPDATE project_state SET events_since = $1 WHERE events_since < $1")

    static func decode(_ rows: Rows) -> VersionedSeries {
        VersionedSeries(
            version: rows.first?.integer(7) ?? 0,
            byExperiment: Dictionary(grouping: rows.compactMap { TrackedSeries($0) }, by: \.experimentID))
    }
}

/// The series of all experiments at one moment.
struct VersionedSeries: Sendable {
    let version: Int64
    let byExperiment: [Identifier: [TrackedSeries]]
}
