import { Page } from "../parts/basic";

export function Dead() {
	return (
		<Page title="Dead" name="Dead">
			{null}
		</Page>
	);
}
