import Bucketing
import JSON

/// The rules of breakdowns, which determine the group of a user in each breakdown of an experiment.
///
/// The value that the attribute has at the first exposure determines the group: the value in the request that caused
/// the exposure, or else the stored value. The first ``BreakdownGroup/limit`` values that occur get a group of their
/// own. Later values share the group ``BreakdownGroup/other``. A group is created in the transaction of the exposure,
/// so that all servers agree on its index.
enum BreakdownRules {
    /// A value of an attribute, reduced to its text. Values with the same text have the same group.
    private enum Value {
        case text(String)
        /// A value without a text form, such as an object. It belongs to the group ``BreakdownGroup/other``.
        case unusable
    }

    /// Returns the user's groups, and creates groups for new values.
    ///
    /// - Parameter exposure: the first exposure. `records` must have the series of its experiment.
    /// - Returns: `nil` if `records` lacks a part that is needed; nothing has changed then.
    static func groups(of exposure: Exposure, in records: inout UserRecords) -> [BreakdownGroup]? {
        let breakdowns = records.series(of: exposure.experimentID).compactMap { series in
            series.breakdown.map { (series: series, attribute: $0) }
        }
        guard !breakdowns.isEmpty else { return [] }
        let given = exposure.givenAttributes
        let isComplete = breakdowns.allSatisfy { given.has($0.attribute) }
        guard isComplete || records.has([.attributes, .definedAttributes]) else { return nil }
        return breakdowns.map { series, attribute in
            let value = given[attribute.string].flatMap { self.value(of: $0) } ?? storedValue(of: attribute, records)
            return BreakdownGroup(series: series.number, index: index(of: value, series, &records))
        }
    }

    /// Returns the index of the group of a value, and creates the group if the value is new.
    ///
    /// - Parameter value: `nil` if the attribute has no value.
    private static func index(
        of value: Value?, _ series: TrackedSeries, _ records: inout UserRecords
    ) -> Int {
        guard let value else { return BreakdownGroup.none }
        // PostgreSQL cannot store NUL.
        guard case .text(let text) = value, text.utf8.count <= BreakdownGroup.valueLimit, !text.utf8.contains(0) else {
            return BreakdownGroup.other
        }
        if let position = series.groupValues.firstIndex(of: Identifier(text)) { return position + 1 }
        guard series.groupValues.count < BreakdownGroup.limit else { return BreakdownGroup.other }
        var series = series
        series.groupValues.append(Identifier(text))
        records.put(series)
        return series.groupValues.count
    }

    /// Returns the stored value of an attribute; `nil` if there is none.
    private static func storedValue(of attribute: Identifier, _ records: UserRecords) -> Value? {
        switch records.storedValue(of: attribute) {
        case .bool(let value): return .text("\(value)")
        case .number(let value): return self.value(of: .number(value))
        case .text(let value), .moment(let value): return .text(value.string)
        case .selection(let values): return .text(values.map(\.string).joined(separator: ", "))
        case nil: return nil
        }
    }

    /// Returns the value of an attribute in a request; `nil` for `null`. Equal numbers have the same text, however the
    /// request writes them.
    private static func value(of json: JSONValue) -> Value? {
        switch json {
        case .null: return nil
        case .bool(let value): return .text("\(value)")
        case .integer, .number:
            let number = json.double.map { JSONValue.shortest($0) } ?? json
            return .text(String(decoding: number.encoded(), as: UTF8.self))
        case .string(let text): return .text(text)
        case .array(let elements):
            let texts = elements.compactMap(\.string)
            return texts.count == elements.count ? .text(texts.joined(separator: ", ")) : .unusable
        case .object: return .unusable
        }
    }
}

extension UserRecords {
    /// Returns the stored value of an attribute; `nil` if there is none. ``UserRecords/Part/attributes`` and
    /// ``UserRecords/Part/definedAttributes`` must have been read.
    func storedValue(of attribute: Identifier) -> AttributeValue? {
        guard let number = definedAttributes.first(where: { $0.value == attribute })?.key,
            case .present(let record) = attributes
        else { return nil }
        return record[number]
    }

    /// Returns the keys of the totals that record the user's groups in an experiment. The series of the experiment must
    /// have been read.
    func groupKeys(in experimentID: Identifier) -> [TotalKey] {
        series(of: experimentID).filter(\.hasGroups).flatMap(\.names)
            .map { TotalKey(experimentID: experimentID, goal: $0) }
    }

    /// Returns the user's groups in the series that group users by allocation period
    /// (``SeriesDefinition/Content/periods``). The series of the experiment must have been read.
    ///
    /// - Parameter period: the number of the user's ``AllocationPeriod``, which is also the index of the group.
    func periodGroups(in experimentID: Identifier, _ period: Int64) -> [BreakdownGroup] {
        series(of: experimentID).filter { $0.definition.content == .periods }
            .map { BreakdownGroup(series: $0.number, index: Int(clamping: period)) }
    }

    /// Returns the user's groups in an experiment. The totals with the ``groupKeys(in:)`` must have been read.
    func groups(in experimentID: Identifier) -> [BreakdownGroup] {
        totals.compactMap { key, total in
            key.experimentID == experimentID ? BreakdownGroup(key.goal, total) : nil
        }
    }
}
