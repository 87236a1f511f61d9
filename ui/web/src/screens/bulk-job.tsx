import { Page } from "../parts/basic";

export function BulkJob() {
	return (
		<Page title="BulkJob" name="BulkJob">
			{null}
		</Page>
	);
}
