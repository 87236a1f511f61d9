import { Page } from "../parts/basic";

export function Keys() {
	return (
		<Page title="Keys" name="Keys">
			{null}
		</Page>
	);
}
