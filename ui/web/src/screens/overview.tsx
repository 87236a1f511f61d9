import { Page } from "../parts/basic";

export function Overview() {
	return (
		<Page title="Overview" name="Overview">
			{null}
		</Page>
	);
}
