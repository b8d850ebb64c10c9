package import Bucketing
import JSON

// Conversions between records and rows. `init(_:)` and `decode(_:)` read a row that has the columns of the record's
// ``StoredTable``, in order. `values` has the values to insert into its ``StoredTable/insertedColumns``, in order.

extension SQLValue {
    package static func text(_ identifier: Identifier?) -> SQLValue { .text(identifier?.string) }
    static func text(_ bytes: [UInt8]?) -> SQLValue { .text(bytes.map { String(decoding: $0, as: UTF8.self) }) }
    package static func integer(_ number: Int) -> SQLValue { .integer(Int64(number)) }
}

extension StoredDatafile {
    package init(_ row: any Row) {
        self.init(
            version: row.bounded(0), sdkKey: row.text(1), revision: row.text(2),
            body: row.optionalBytes(6).map { .parts(DatafileParts(base: $0, elements: [])) } ?? .whole(row.bytes(3)),
            storedAt: row.instant(4), author: row.text(5))
    }

    package var values: [SQLValue] {
        let (content, base): ([UInt8], [UInt8]?) =
            switch body {
            case .whole(let content): (content, nil)
            case .parts(let parts): ([], parts.base)
            case .change(let change): ([], change.base)
            }
        return [
            .integer(version), .text(sdkKey), .text(revision), .bytes(content), .instant(storedAt), .text(author),
            .bytes(base),
        ]
    }

    /// The columns of a datafile in the order of ``init(_:)``, with NULL in place of the content.
    package static let columnsWithoutContent = "version, sdk_key, revision, NULL, stored_at, author, NULL"
}

extension DatafileParts.Element {
    /// The columns in the order of ``init(_:from:)``.
    package static let columns = "list, key, position, body, version"

    /// - Parameter column: the first of the ``columns``, which are consecutive.
    package convenience init(_ row: any Row, from column: Int32 = 0) {
        self.init(
            .init(list: row.identifier(column), key: row.identifier(column + 1)), position: row.integer(column + 2),
            body: row.bytes(column + 3), version: row.bounded(column + 4))
    }

    /// Returns the row of an element that a datafile adds or replaces. Its end is NULL.
    ///
    /// - Parameter version: the version of the datafile.
    package func values(_ sdkKey: String, version: Int64) -> [SQLValue] {
        [
            .text(sdkKey), .text(name.list), .text(name.key), .integer(version), .integer(nil as Int64?),
            .integer(position),
            .bytes(body),
        ]
    }
}

extension ProjectRecord {
    package init(_ row: any Row) {
        self.init(
            sdkKey: row.text(0), name: row.text(1), createdAt: row.instant(2), isDefault: row.integer(3) != 0)
    }

    package var values: [SQLValue] { [.text(sdkKey), .text(name), .instant(createdAt), .integer(isDefault ? 1 : 0)] }
}

extension ForcedVariation {
    package init(_ row: any Row) {
        self.init(
            sdkKey: row.text(0), userID: row.identifier(1), experimentKey: row.identifier(2),
            variationKey: row.identifier(3))
    }

    package var values: [SQLValue] { [.text(sdkKey), .text(userID), .text(experimentKey), .text(variationKey)] }
    /// The values of the keys of ``UserRecords/PartRows/forcedVariations``.
    package var key: [SQLValue] { [.text(userID), .text(sdkKey), .text(experimentKey)] }
}

extension AttributeDefinition {
    /// - Returns: `nil` for a definition of a newer release, which is skipped as if it did not exist.
    package init?(_ row: any Row) {
        guard let document = try? JSONParser().parse(row.text(2)), let number = UInt32(exactly: row.integer(0)) else {
            return nil
        }
        self.init(name: row.identifier(1), number: number, document: document)
    }

    /// The definition as JSON text, for the column `definition`.
    package var storedDocument: String { String(decoding: document.encoded(), as: UTF8.self) }
    package var values: [SQLValue] { [.integer(Int64(number)), .text(name), .text(storedDocument)] }
}

extension Segment {
    package init?(_ row: any Row) {
        let conditions = Segment.conditions(stored: row.text(1))
        guard !conditions.isNull else { return nil }
        self.init(name: row.identifier(0), conditions: conditions)
    }

    package var values: [SQLValue] { [.text(name), .text(storedConditions)] }
}

extension AllocationPeriod {
    package typealias OfExperiment = (experimentID: Identifier, period: AllocationPeriod)

    package static func decode(_ row: any Row) -> OfExperiment {
        (
            row.identifier(0),
            AllocationPeriod(
                number: row.integer(1), sdkKey: row.text(2), since: row.instant(3), stored: row.text(4))
        )
    }

    package func values(_ experimentID: Identifier) -> [SQLValue] {
        [.text(experimentID), .integer(number), .text(sdkKey), .instant(since), .text(storedAllocation)]
    }
}

extension StatusPeriod {
    package typealias OfExperiment = (experimentID: Identifier, period: StatusPeriod)

    package static func decode(_ row: any Row) -> OfExperiment {
        (
            row.identifier(0),
            StatusPeriod(number: row.integer(1), sdkKey: row.text(2), since: row.instant(3), status: row.text(4))
        )
    }

    package func values(_ experimentID: Identifier) -> [SQLValue] {
        [.text(experimentID), .integer(number), .text(sdkKey), .instant(since), .text(status)]
    }
}

extension TrackedSeries {
    /// - Returns: `nil` for a definition of a newer release, which is skipped as if it did not exist.
    package init?(_ row: any Row) {
        guard let json = try? JSONParser().parse(row.text(3)), let definition = SeriesDefinition(json),
            let state = State(rawValue: row.integer(4))
        else { return nil }
        self.init(
            number: row.integer(0), sdkKey: row.text(1), experimentID: row.identifier(2), definition: definition,
            state: state, doneTo: row.integer(5), since: row.instant(6))
        groupValues = (json.object?["values"]?.array ?? []).compactMap { $0.string.map { Identifier($0) } }
    }

    package var values: [SQLValue] {
        var json = definition.json.object ?? JSONObject()
        if !groupValues.isEmpty { json["values"] = .array(groupValues.map { .string($0.string) }) }
        return [
            .integer(number), .text(sdkKey), .text(experimentID), .text(JSONValue.object(json).encoded()),
            .integer(state.rawValue), .integer(doneTo), .instant(since),
        ]
    }
}

extension StoredExposure {
    package init(_ row: any Row) {
        let flags = row.integer(6)
        let exposure = Exposure(
            userID: row.identifier(0), experimentID: row.identifier(1), experimentKey: row.identifier(3),
            variationID: row.identifier(4), happenedAt: row.instant(5), isChosen: flags & Int64(Self.chosen) != 0,
            sdkKey: row.text(7), payload: row.bytes(8))
        self.init(
            number: row.integer(2), exposure: exposure,
            hasMultipleVariations: flags & Int64(Self.multipleVariations) != 0, period: row.integer(9))
    }

    package var values: [SQLValue] {
        [
            .text(exposure.userID), .text(exposure.experimentID), .text(exposure.experimentKey),
            .text(exposure.variationID), .instant(exposure.happenedAt), .integer(Int64(flags)), .text(exposure.sdkKey),
            .text(exposure.payload), .integer(period),
        ]
    }
}

extension StoredGoalEvent {
    package init(_ row: any Row) {
        let event = GoalEvent(
            userID: row.identifier(1), goal: row.identifier(2), value: row.double(3), happenedAt: row.instant(4),
            receivedAt: row.instant(5), senderID: row.optionalIdentifier(7), sdkKey: row.text(6),
            payload: row.bytes(8))
        self.init(number: row.integer(0), event: event)
    }
}

extension GoalEvent {
    package var values: [SQLValue] {
        [
            .text(userID), .text(goal), .double(value), .instant(happenedAt), .instant(receivedAt), .text(sdkKey),
            .text(senderID), .text(payload),
        ]
    }
}

extension UserRecords.GoalValue {
    /// - Parameter row: the user, and a goal, value, time and sender's id.
    package init(_ row: any Row) {
        self.init(
            goal: row.identifier(1), value: row.double(2), happenedAt: row.instant(3),
            senderID: row.optionalIdentifier(4))
    }
}

extension UserRecords.Several {
    /// - Parameter row: the user, the number of records, and the greatest of their numbers.
    package init(_ row: any Row) {
        self.init(count: Int(row.bounded(1)), newest: row.integer(2))
    }
}

extension UserRecords.StickyContent {
    package init(_ row: any Row) {
        self.init(attributeName: row.text(1), content: row.text(2))
    }
}

extension StickyDocument {
    package var values: [SQLValue] {
        [.text(key.attributeValue), .text(key.attributeName), .text(content.encoded())]
    }
}

extension UserGoal {
    package static func decode(_ row: any Row) -> (key: UserRecords.TotalKey, total: UserGoal) {
        (.init(experimentID: row.identifier(1), goal: row.identifier(2)), UserGoal(row, at: 3))
    }

    /// The columns of the `user_goals` table that ``init(_:at:)`` reads.
    static let columns = ["before_count", "before_value", "after_count", "after_value", "valued"]

    /// - Parameter first: the first of the ``columns``, which are consecutive.
    init(_ row: any Row, at first: Int32) {
        self.init(
            beforeCount: row.bounded(first), beforeValue: row.double(first + 1), afterCount: row.bounded(first + 2),
            afterValue: row.double(first + 3), valuedCount: row.bounded(first + 4))
    }

    package func values(_ userID: Identifier, _ key: UserRecords.TotalKey) -> [SQLValue] {
        [
            .text(userID), .text(key.experimentID), .text(key.goal), .integer(beforeCount), .double(beforeValue),
            .integer(afterCount), .double(afterValue), .integer(valuedCount),
        ]
    }
}

extension UserCounts {
    /// - Parameter column: the first of four consecutive columns with the counts.
    package init(_ row: any Row, at column: Int32) {
        self.init(
            counted: Int(row.bounded(column)), multipleVariations: Int(row.bounded(column + 1)),
            chosen: Int(row.bounded(column + 2)), notRunning: Int(row.bounded(column + 3)))
    }
}

extension GoalTally {
    /// - Parameter column: the first of the ``columns(_:)``, which are consecutive: four counts, five sums with their
    ///   rests, and one more count.
    package init(_ row: any Row, at column: Int32) {
        func sum(_ index: Int32) -> CompensatedSum {
            CompensatedSum(row.double(column + index), rest: row.double(column + index + 1))
        }
        self.init()
        events = Int(row.bounded(column))
        converted = Int(row.bounded(column + 1))
        convertedBefore = Int(row.bounded(column + 2))
        convertedBoth = Int(row.bounded(column + 3))
        y = sum(4)
        yy = sum(6)
        x = sum(8)
        xx = sum(10)
        xy = sum(12)
        valued = Int(row.bounded(column + 14))
    }

    package func values(_ key: TallyChanges.Goal) -> [SQLValue] {
        [
            .text(key.experimentID), .text(key.goal), .text(key.variationID), .integer(key.day), .integer(events),
            .integer(converted), .integer(convertedBefore), .integer(convertedBoth),
        ] + [y, yy, x, xx, xy].flatMap { [.double($0.value), .double($0.rest)] } + [.integer(valued)]
    }
}

extension FrozenRow {
    package init(_ row: any Row) {
        self.init(
            experimentID: row.identifier(0), frozenAt: row.instant(1), goal: row.identifier(2), content: row.text(3))
    }
}

extension AuditEntry {
    package init(_ row: any Row) {
        self.init(
            id: row.integer(0), recordedAt: row.instant(1),
            author: Author(name: row.text(2), requestID: row.text(3)), action: row.text(4),
            userID: row.optionalIdentifier(5), target: row.text(6), before: row.optionalBytes(7),
            after: row.optionalBytes(8))
        sdkKey = row.optionalText(9)
    }

    package var values: [SQLValue] {
        [
            .instant(recordedAt), .text(author.name), .text(author.requestID), .text(action), .text(userID),
            .text(target), .text(before), .text(after), .text(sdkKey),
        ]
    }
}
